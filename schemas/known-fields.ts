import { z } from 'zod';

interface Shape {
  properties?: Record<string, Shape>;
  items?: Shape;
  anyOf?: Shape[];
  oneOf?: Shape[];
  const?: unknown;
  not?: unknown;
}

/** Made once a schema: a file may have a thousand lines with the same mistake. */
const shapes = new WeakMap<z.ZodType, Shape>();

/**
 * The fields that an object at this path of what a schema describes may have; none where that is not certain.
 * @param value what the path leads through: of a union of objects it tells which was meant
 */
export function knownFields(schema: z.ZodType, path: readonly PropertyKey[], value?: unknown): string[] {
  let shape = shapes.get(schema);
  if (shape === undefined) {
    shape = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as Shape;
    shapes.set(schema, shape);
  }
  let places: Shape[] = branches(shape);
  let given = value;
  for (const key of path) {
    places = places.flatMap((place) =>
      branches(typeof key === 'number' ? place.items : place.properties?.[String(key)]),
    );
    given = fieldOf(given, key);
  }
  const objects = places.filter(({ properties }) => properties !== undefined);
  const [only, ...others] = objects.length > 1 ? objects.filter((place) => isTagged(place, given)) : objects;
  if (only === undefined || others.length > 0) return [];
  return Object.entries(only.properties ?? {}).flatMap(([name, { not }]) => (not === undefined ? [name] : []));
}

/** Whether the value has the constants by which a union tells its objects apart. */
function isTagged({ properties = {} }: Shape, value: unknown): boolean {
  return Object.entries(properties).every(
    ([name, field]) => field.const === undefined || field.const === fieldOf(value, name),
  );
}

function fieldOf(value: unknown, key: PropertyKey): unknown {
  return (value as Record<PropertyKey, unknown> | null | undefined)?.[key];
}

function branches(shape: Shape | undefined): Shape[] {
  if (shape === undefined) return [];
  const inner = shape.anyOf ?? shape.oneOf;
  return inner ? inner.flatMap(branches) : [shape];
}
