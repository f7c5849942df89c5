import { Command } from 'commander';
import { findImage, type Image, referenceTo } from '../../images/store.ts';
import { quote } from '../../schemas/index.ts';
import { openClientStore, storeConfig } from './client.ts';
import { CliError } from './error.ts';
import { mib, pushImage } from './image-bucket.ts';
import { explained } from './images.ts';
import { Interrupt } from './interrupt.ts';
import { progressView } from './progress.ts';

export const pushCommand = new Command('push')
  .description('Put images of the cache into the bucket, for other hosts to pull')
  .argument('<name...>', 'images, NAME for its newest build or NAME@DIGEST')
  .option('--again', 'send what is there as well: mends what was damaged there')
  .addHelpText(
    'after',
    '\nWhat is there is not sent again, so a push that was cut short goes on where it was. It needs the right to put images/ (infra/s3/policies/images.json).',
  )
  .action(async (references: string[], { again = false }: { again?: boolean }) => {
    using interrupt = new Interrupt();
    const { signal } = interrupt;
    const config = await storeConfig();
    // Told before anything is sent.
    const images: Image[] = [];
    for (const reference of references) images.push(await imageToPush(reference, config.cacheDir));
    using store = openClientStore(config);
    for (const image of images) {
      const view = progressView(`push ${referenceTo(image)}`);
      view.report({ phase: 'sending', fraction: 0, message: `sending to ${store.url('images/')}` });
      try {
        const pushed = await pushImage(store, image, {
          ...{ signal, again },
          onProgress: ({ fraction, sentBytes }) =>
            view.report({ phase: 'sending', fraction, message: `${mib(sentBytes)} MiB sent` }),
        });
        view.done();
        view.stop();
        console.error(
          pushed === null
            ? `${referenceTo(image)} was there`
            : `${referenceTo(image)}: ${pushed.sent} chunks of ${mib(pushed.sentBytes)} MiB sent, ${pushed.kept} were there`,
        );
        console.log(`${image.name}@${image.digest}`);
      } finally {
        view.stop();
      }
    }
  });

async function imageToPush(reference: string, cacheDir: string): Promise<Image> {
  const image = await findImage(reference, cacheDir).catch(explained);
  if (image) return image;
  throw new CliError(
    `image ${quote(reference)} is not in ${cacheDir}; gymbus image ls lists what is, gymbus image build makes it`,
  );
}
