"""Row holders of one owner: rows on a public grid, with clipped contributions."""
