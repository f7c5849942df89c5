import { click, hotkey, icon, key, PANEL, script, slow, type } from '../../infra/demo/desktop.ts';
import type { TrajectoryJobInput } from '../../schemas/index.ts';

const GIVE_UP: TrajectoryJobInput['policy'] = { name: 'scripted', params: { actions: [{ type: 'fail' }] } };

/** How a person does OSWorld's tasks on this desktop, with mouse and keyboard. */
export const ORACLES: Record<string, TrajectoryJobInput['policy']> = {
  // Rename a directory: made by root, but in a folder of the user's, who may then name it as he likes.
  'e0df059f-28a6-4169-924f-b9623e7184cc': script(
    click(icon(0)),
    slow(key('f2')),
    hotkey('ctrl', 'a'),
    type('todo_list_Jan_2'),
    slow(key('enter')),
  ),
  // Time zone UTC+0: there is no dialog for it, so in the terminal, with the password that `sudo` asks for.
  'b6781586-6346-41cd-935a-a6b1487918fc': script(
    slow(click(PANEL.terminal), 3),
    slow(type('sudo timedatectl set-timezone UTC\n'), 2),
    slow(type('password\n'), 3),
  ),
  // Switch to a user that does not exist.
  'a462a795-fdc7-4b23-b689-e8b6df786b78': GIVE_UP,
  // Show the battery's percentage: there is no battery.
  'fe41f596-a71b-4c2f-9b2f-9dcd40b568c3': GIVE_UP,
};
