-- What a statement that must fail is refused with; NULL if it does not fail.
CREATE OR REPLACE FUNCTION pg_temp.refused(statement text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    state   text;
    message text;
    detail  text;
    hint    text;
BEGIN
    EXECUTE statement;
    RETURN NULL;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN ARRAY[state, message, detail, hint];
END $$
