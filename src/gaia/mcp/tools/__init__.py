"""Tools as the client sees them: names, schemas, the catalog, filters, pins, results."""
