/** The machine is gone under its user. */
export class ReplicaLost extends Error {
  override readonly name = 'ReplicaLost';
  /** This host's disk failed under it: neither its guest nor its job had a part in that. */
  readonly byHost: boolean;
  constructor(message: string, options: { cause?: unknown; byHost?: boolean } = {}) {
    super(message, { cause: options.cause });
    this.byHost = options.byHost ?? false;
  }
}

/** Nothing was sent to the guest. */
export class ActionRejected extends Error {
  override readonly name = 'ActionRejected';
}

/** An action was sent and its acknowledgement lost. */
export class MaybeDelivered extends Error {
  override readonly name = 'MaybeDelivered';
}

/** QEMU answered a command with an error. */
export class QmpError extends Error {
  override readonly name = 'QmpError';
}

/** QEMU did not answer in time, or its channel is closed: nothing is known of what happened. */
export class QmpSilent extends Error {
  override readonly name = 'QmpSilent';
}

/** The guest's helper answered a request with an error. */
export class HelperError extends Error {
  override readonly name = 'HelperError';
  /** `ENOENT`, `EINVAL`, ... as the guest gave it. */
  readonly code: string;
  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}
