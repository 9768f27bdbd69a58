SELECT * FROM pragma_writable_schema
