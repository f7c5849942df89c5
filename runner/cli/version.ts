import packageJson from '../../package.json' with { type: 'json' };

export const VERSION: string = packageJson.version;

/** What a manifest says of the software that made it; the engine adds its own. */
export const VERSIONS: Record<string, string> = { gymbus: VERSION, node: process.versions.node };
