import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** A publisher that writes what no client's library would: bytes on a socket. */
export class RawPublisher implements Disposable {
  readonly #socket: Socket;
  #heard = '';

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (data) => {
      this.#heard += data.toString('latin1');
    });
  }

  static async connect(port: number): Promise<RawPublisher> {
    const socket = connect(port, '127.0.0.1');
    await once(socket, 'connect');
    socket.write('CONNECT {"verbose":false,"headers":true}\r\n');
    return new RawPublisher(socket);
  }

  /**
   * Publishes a message and waits until the server has read it. Each character stands for one byte.
   * @param headers the whole block, or null for a message without
   */
  async publish(subject: string, headers: string | null, body = ''): Promise<void> {
    const block = headers ?? '';
    const size = block.length + body.length;
    const line = headers === null ? `PUB ${subject} ${size}` : `HPUB ${subject} ${block.length} ${size}`;
    this.#heard = '';
    this.#socket.write(Buffer.from(`${line}\r\n${block}${body}\r\nPING\r\n`, 'latin1'));
    while (!this.#heard.includes('PONG')) await once(this.#socket, 'data');
    if (this.#heard.includes('-ERR')) throw new Error(this.#heard);
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }
}
