"""Words and wire: what two parties may say to each other, and how it travels. Knows nothing of trees or privacy."""
