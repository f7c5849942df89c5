/** The runner's name is taken on this host, or something it needs cannot be had; the message says what to do. */
export class RunnerRefused extends Error {
  override readonly name = 'RunnerRefused';
}
