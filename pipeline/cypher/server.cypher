// What is asked of a server rather than of a graph.

// name: components
// Versions of the server, of which there is one.
CALL dbms.components() YIELD versions
RETURN versions[0] AS version LIMIT 1;

// name: create_database
// Create a database and wait until it is online. Enterprise only.
CREATE DATABASE $name IF NOT EXISTS WAIT;
