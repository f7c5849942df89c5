import type { NatsConnection } from '@nats-io/transport-node';
import type { Logger } from 'pino';

/**
 * The client calls back from the loop that reads its socket. What is thrown there ends the loop, and the connection hears
 * nothing until its pings have gone stale. So whatever a message makes a callback throw, ours or one of the client's own
 * libraries', ends here: that message is lost to it, and no other.
 * @returns the connection
 */
export function guardCallbacks(nc: NatsConnection, log: Logger): NatsConnection {
  const subscribe = nc.subscribe.bind(nc);
  nc.subscribe = (subject, options = {}) => {
    const { callback } = options;
    if (!callback) return subscribe(subject, options);
    return subscribe(subject, {
      ...options,
      callback: (error, message) => {
        try {
          callback(error, message);
        } catch (thrown) {
          log.error({ err: thrown, subject: message?.subject }, 'a message of the bus could not be read');
        }
      },
    });
  };
  return nc;
}
