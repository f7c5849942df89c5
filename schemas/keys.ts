/** Object keys in the bucket. Folder keys end in a slash. */
export const objectKeys = {
  job: (batch: string, job: string): string => `batches/${batch}/jobs/${job}/`,
  attempt: (batch: string, job: string, attempt: string): string => `batches/${batch}/jobs/${job}/attempts/${attempt}/`,
  result: (batch: string, job: string): string => `batches/${batch}/jobs/${job}/result.json`,
  inputs: (batch: string): string => `inputs/${batch}/`,
  images: (image: string): string => `images/${image}/`,
  image: (image: string, digest: string): string => `images/${image}/${digest}/`,
};

/** File names inside an attempt's folder, the same in the spool and in the bucket. */
export const attemptFiles = {
  job: 'job.json',
  trajectory: 'trajectory.jsonl',
  log: 'runner.log',
  manifest: 'manifest.json',
  serial: 'diagnostics/serial.log',
  lastPicture: 'diagnostics/last-picture.png',
  setup: 'diagnostics/setup.jsonl',
  /** Step 0 is the reset observation; four digits, more when there are more. */
  screenshot: (step: number): string => `step-${String(step).padStart(4, '0')}.png`,
  a11yTree: (step: number): string => `step-${String(step).padStart(4, '0')}.a11y.xml`,
};
