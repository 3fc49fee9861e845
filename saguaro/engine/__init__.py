"""One model, many sequences: paged KV memory, ragged batches, tree decode. Import its modules by name."""
