import { desktopRecipe } from '../desktop/recipe.ts';

const applications = 'chromium libreoffice-writer libreoffice-calc libreoffice-impress geany'.split(' ');

/** A desktop of an office: browser, office suite and code editor, each started once before the template is saved. */
export const office = desktopRecipe({
  name: 'office',
  description: 'Debian 12 with Openbox, Chromium, LibreOffice (Writer, Calc, Impress), Geany, PCManFM and LXTerminal',
  packages: [
    ...applications,
    // GTK's dialogs and theme in LibreOffice, and what documents from elsewhere call Arial, Times and Calibri.
    ...'libreoffice-gtk3 fonts-liberation fonts-crosextra-carlito'.split(' '),
  ],
  mainPackages: applications,
  excludePaths: [
    '/usr/lib/chromium/locales/*',
    // Three-dimensional pages are drawn by nobody here.
    '/usr/lib/chromium/libvk_swiftshader.so',
    '/usr/lib/libreoffice/share/gallery/*',
  ],
  includePaths: ['/usr/lib/chromium/locales/en-US.pak'],
  panel: [
    'pcmanfm',
    'chromium',
    'libreoffice-writer',
    'libreoffice-calc',
    'libreoffice-impress',
    'geany',
    'lxterminal',
  ],
  memory_mib: 2048,
  disk_mib: 4096,
});
