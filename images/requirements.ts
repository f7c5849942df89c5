/** A program the build of an image needs, and the Debian package that brings it. */
export interface Requirement {
  readonly tool: string;
  readonly aptPackage: string;
}

export const imageRequirements: readonly Requirement[] = [
  { tool: 'mmdebstrap', aptPackage: 'mmdebstrap' },
  { tool: 'apt-get', aptPackage: 'apt' },
  { tool: 'dpkg-query', aptPackage: 'dpkg' },
  { tool: 'mke2fs', aptPackage: 'e2fsprogs' },
  { tool: 'unshare', aptPackage: 'util-linux' },
  { tool: 'setpriv', aptPackage: 'util-linux' },
  { tool: 'python3', aptPackage: 'python3' },
  { tool: 'pip3', aptPackage: 'python3-pip' },
];
