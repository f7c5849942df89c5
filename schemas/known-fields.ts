import { z } from 'zod';

interface Shape {
  properties?: Record<string, Shape>;
  items?: Shape;
  anyOf?: Shape[];
  not?: unknown;
}

/** Made once a schema: a file may have a thousand lines with the same mistake. */
const shapes = new WeakMap<z.ZodType, Shape>();

/** The fields that an object at this path of what a schema describes may have; none where that is not certain. */
export function knownFields(schema: z.ZodType, path: readonly PropertyKey[]): string[] {
  let shape = shapes.get(schema);
  if (shape === undefined) {
    shape = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as Shape;
    shapes.set(schema, shape);
  }
  let places: Shape[] = branches(shape);
  for (const key of path) {
    places = places.flatMap((place) =>
      branches(typeof key === 'number' ? place.items : place.properties?.[String(key)]),
    );
  }
  const [only, ...others] = places.filter(({ properties }) => properties !== undefined);
  if (only === undefined || others.length > 0) return [];
  return Object.entries(only.properties ?? {}).flatMap(([name, { not }]) => (not === undefined ? [name] : []));
}

function branches(shape: Shape | undefined): Shape[] {
  if (shape === undefined) return [];
  return shape.anyOf ? shape.anyOf.flatMap(branches) : [shape];
}
