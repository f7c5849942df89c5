/** How a machine was lost. */
export interface Loss {
  /** This host's disk failed under it: neither its guest nor its job had a part in that. */
  byHost?: boolean;
  /** A fault was found in its guest, or it was taken from its user, while QEMU ran on: the machine itself did not die. */
  found?: boolean;
}

/** The machine is gone under its user. */
export class ReplicaLost extends Error {
  override readonly name = 'ReplicaLost';
  readonly byHost: boolean;
  readonly found: boolean;
  constructor(message: string, options: Loss & { cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.byHost = options.byHost ?? false;
    this.found = options.found ?? false;
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
