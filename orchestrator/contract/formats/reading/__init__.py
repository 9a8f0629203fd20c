"""Read saved files without the frameworks: names, structure, content."""
