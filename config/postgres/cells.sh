#!/bin/sh
# Run once by the PostgreSQL image, when its volume is new: three databases, each with a login that owns it and sees no other.
# A region's database can move to a server of its own at any time; nothing but its URL changes.
set -eu

cell() { # NAME PASSWORD
    # The password goes through the environment: a command line can be read by others, and a statement that fails is logged.
    CELL_PASSWORD=$2 psql --no-psqlrc --quiet --username "${POSTGRES_USER:-postgres}" --dbname postgres \
        --set ON_ERROR_STOP=1 --set name="$1" <<'SQL'
\getenv password CELL_PASSWORD
SET log_min_error_statement = panic;
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
}

cell fanout_home "$HOME_DATABASE_PASSWORD"
cell fanout_eu "$EU_DATABASE_PASSWORD"
cell fanout_us "$US_DATABASE_PASSWORD"
