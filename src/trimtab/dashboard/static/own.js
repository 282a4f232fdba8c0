// Tables whose keys come from a record: a metric may be called "constructor".

/** table[key] where the table itself has it, else undefined. */
export function own(table, key) {
  return Object.hasOwn(table, key) ? table[key] : undefined;
}
