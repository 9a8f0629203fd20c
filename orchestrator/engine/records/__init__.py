"""Store what is remembered between passes: the record, the journal, capacity, the create budget."""
