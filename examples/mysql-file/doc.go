// Package mysqlfile is an example: run.sh shows an application that has a table of commands in MySQL or MariaDB, with rows
// in it. init adopts the table, and connectd appends the commands that have not been sent to a file.
package mysqlfile
