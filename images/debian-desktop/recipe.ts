import { desktopRecipe } from '../desktop/recipe.ts';

const languages = ['def', 'python', 'sh', 'html', 'xml', 'css', 'javascript', 'json', 'markdown', 'ini', 'c'];

/** A small desktop: file manager with icons on the screen, text editor, terminal, panel. Quick under emulation. */
export const debianDesktop = desktopRecipe({
  name: 'debian-desktop',
  description: 'Debian 12 with Openbox, PCManFM, Mousepad, LXTerminal and a panel',
  packages: ['mousepad'],
  mainPackages: ['mousepad'],
  excludePaths: [
    // The editor reads every language it could colour before it shows its window: two seconds under emulation.
    '/usr/share/gtksourceview-4/language-specs/*.lang',
    '/usr/share/gtksourceview-4/styles/*',
    '/usr/lib/x86_64-linux-gnu/mousepad/plugins/*',
  ],
  includePaths: [
    ...languages.map((name) => `/usr/share/gtksourceview-4/language-specs/${name}.lang`),
    '/usr/share/gtksourceview-4/styles/classic.xml',
  ],
  panel: ['pcmanfm', 'org.xfce.mousepad', 'lxterminal'],
  memory_mib: 1024,
  disk_mib: 3072,
});
