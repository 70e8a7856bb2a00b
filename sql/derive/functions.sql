-- The functions behind a derived column. Their owner is the owner of its table. The first one runs for each new row: it has no
-- SET clause, and all that it names is qualified.
CREATE OR REPLACE FUNCTION {schema}.{derive}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $derive$
BEGIN
    -- What refers to nothing keeps what it has.
    IF {is_unset} THEN
        RETURN NEW;
    END IF;
    -- The row is held until the end of the transaction, as a foreign key holds it: its value cannot change meanwhile.
    SELECT p.{value} INTO NEW.{column} FROM {only} {parent} p WHERE {leads_there} FOR KEY SHARE;
    RETURN NEW;
END $derive$;

-- A value that changes waits for whoever has read it and not committed, and takes the rows along that have it.
CREATE OR REPLACE FUNCTION {schema}.{hold}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $derive$
BEGIN
    -- With an older snapshot, rows that others have committed since would keep the old value.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'column % of table % can change only at isolation level READ COMMITTED', {value_text}, {parent_text}
            USING ERRCODE = '0A000',
                  HINT = {hint};
    END IF;
    PERFORM FROM {only} {parent} p WHERE {is_old} FOR UPDATE;
    RETURN NEW;
END $derive$;

CREATE OR REPLACE FUNCTION {schema}.{pass}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $derive$
BEGIN
    UPDATE {child} c SET {column} = NEW.{value} WHERE {comes_here};
    RETURN NULL;
END $derive$;
