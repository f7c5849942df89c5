/** What of a nats-server's configuration gymbus decides; the rest keeps the server's defaults. */
export interface NatsServerSettings {
  host: string;
  port: number;
  /** Folder of JetStream's files. */
  storeDir: string;
  /** Every write is on disk before it is confirmed. A third of the publishes per second, and jobs take seconds. */
  syncAlways?: boolean;
  /** Anybody may do anything when absent. */
  users?: readonly NatsUser[];
  /** File with the server's process id. */
  pidFile?: string;
  /** Seen by `nats server` and in logs. */
  serverName?: string;
}

export interface NatsUser {
  user: string;
  password: string;
  /** Subjects it may publish to and subscribe to; all when absent. */
  permissions?: { publish?: readonly string[]; subscribe?: readonly string[] };
}

/** The server's own default, written down: a job has at most half of it, so that its dead letter always fits. */
const MAX_PAYLOAD_BYTES = 1_048_576;

/** The text of a nats-server configuration file. Holds secrets when there are users: keep it 0600. */
export function natsServerConfig(settings: NatsServerSettings): string {
  const { host, port, storeDir, syncAlways = true, users = [], pidFile, serverName } = settings;
  const lines = [
    `host: ${quote(host)}`,
    `port: ${port}`,
    ...(serverName === undefined ? [] : [`server_name: ${quote(serverName)}`]),
    ...(pidFile === undefined ? [] : [`pid_file: ${quote(pidFile)}`]),
    `max_payload: ${MAX_PAYLOAD_BYTES}`,
    'jetstream {',
    `  store_dir: ${quote(storeDir)}`,
    ...(syncAlways ? ['  sync_interval: always'] : []),
    // A durable for each image and batch; the default of 1,000 a stream is soon reached.
    '  limits { default_max_consumers: -1 }',
    '}',
  ];
  if (users.length > 0) lines.push('authorization {', '  users = [', ...users.map(userLine), '  ]', '}');
  return `${lines.join('\n')}\n`;
}

function userLine({ user, password, permissions }: NatsUser): string {
  const allowed = [
    ...(permissions?.publish ? [`publish: ${list(permissions.publish)}`] : []),
    ...(permissions?.subscribe ? [`subscribe: ${list(permissions.subscribe)}`] : []),
  ];
  const rights = allowed.length > 0 ? `, permissions: { ${allowed.join(', ')} }` : '';
  return `    { user: ${quote(user)}, password: ${quote(password)}${rights} }`;
}

function list(subjects: readonly string[]): string {
  return `[${subjects.map(quote).join(', ')}]`;
}

/** The format's quoted strings know the escapes of JSON. */
function quote(text: string): string {
  return JSON.stringify(text);
}
