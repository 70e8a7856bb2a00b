REVOKE ALL ON FUNCTION {schema}.{derive}(), {schema}.{hold}(), {schema}.{pass}() FROM PUBLIC;
COMMENT ON FUNCTION {schema}.{derive}() IS {about};
COMMENT ON FUNCTION {schema}.{hold}() IS {about};
COMMENT ON FUNCTION {schema}.{pass}() IS {about};
