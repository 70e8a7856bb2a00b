//! Objects that clients' statements, views and functions use besides tables. If they differ on the target,
//! the check makes a remark.

use shardmaster_tests::cluster::{DATABASE, wait_healthy};
use shardmaster_tests::fixture::{by_superuser, by_superusers, cluster, plan};
use shardmaster_tests::server::Stop;

/// Objects that clients' statements use and that are not part of a table.
const USED: &str = r#"
    SET check_function_bodies = off; CREATE ROLE reader; CREATE ROLE lord LOGIN SUPERUSER;
    CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
    CREATE TEXT SEARCH CONFIGURATION words (COPY = english);
    CREATE DOMAIN email AS text CHECK (VALUE LIKE '%@%'); CREATE TABLE currencies (id int PRIMARY KEY, code text); INSERT INTO currencies VALUES (1, 'EUR');
    GRANT SELECT ON currencies TO mover, app_owner; GRANT REFERENCES ON currencies TO app_owner;
    CREATE TABLE units (id int PRIMARY KEY); GRANT SELECT ON units TO mover, app_owner; GRANT REFERENCES ON units TO app_owner;
    ALTER TABLE items ADD unit int CONSTRAINT of_unit REFERENCES units ON DELETE CASCADE, ADD c text COLLATE ci, ADD currency int CONSTRAINT of_currency REFERENCES currencies DEFERRABLE,
        ADD ts tsvector GENERATED ALWAYS AS (to_tsvector('public.words', coalesce(val, ''))) STORED,
        ADD a int, ADD b int, ADD n bigint, ADD whole int, ADD single real, ADD paid numeric(10,2), ADD paid_at timestamp(0), ADD told varchar(9),
        ADD took interval(0), ADD mail email,
        ADD CONSTRAINT once UNIQUE (tenant, a) DEFERRABLE INITIALLY DEFERRED, ADD CONSTRAINT at_once UNIQUE (tenant, b);
    CREATE SEQUENCE by_fifty INCREMENT 50; ALTER SEQUENCE by_fifty OWNER TO app_owner; ALTER TABLE items ALTER n SET DEFAULT nextval('by_fifty');
    CREATE FUNCTION add_one() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.a := NEW.a + 1; RETURN NEW; END';
    CREATE FUNCTION twice() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.a := NEW.a * 2; RETURN NEW; END';
    CREATE TRIGGER a_add BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION add_one();
    CREATE TRIGGER b_twice BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION twice();
    CREATE FUNCTION shout(text) RETURNS text LANGUAGE sql AS 'SELECT upper($1)';
    CREATE VIEW seen AS SELECT tenant, id, public.shout(val) AS said, code FROM items;
    ALTER VIEW seen ALTER code SET DEFAULT 42; GRANT SELECT (tenant, id) ON seen TO reader;
    CREATE MATERIALIZED VIEW counted AS SELECT tenant, count(*) FROM items GROUP BY tenant; CREATE UNIQUE INDEX ON counted (tenant);
    CREATE FUNCTION label(items) RETURNS text LANGUAGE sql AS 'SELECT $1.val';
    CREATE FUNCTION fmt(numeric) RETURNS text LANGUAGE sql AS 'SELECT $1::text';
    CREATE DOMAIN short AS varchar(9); CREATE TABLE kinds (id int, name text); INSERT INTO kinds VALUES (1, 'one'); GRANT SELECT ON kinds TO mover, reader;
    CREATE EXTENSION citext VERSION '1.6'; CREATE TYPE grade AS ENUM ('x', 'y'); CREATE TYPE mark AS ENUM ('one', 'two');
    ALTER TABLE items ADD CHECK (code <> -1 OR val::grade = 'x');
    CREATE VIEW by_kind AS SELECT i.id, k.name FROM items i JOIN kinds k ON k.id = i.code;
    CREATE FUNCTION formats() RETURNS trigger LANGUAGE plpgsql AS 'DECLARE s public.short; m public.mark; BEGIN PERFORM fmt(1), current_setting(''app.region'', true);
        INSERT INTO log VALUES (NEW.val); PERFORM nextval(''drawn''), help.h() FROM cnt, rate, blocked; RETURN NEW; END';
    CREATE TRIGGER formats BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION formats();
    CREATE SCHEMA api; CREATE SCHEMA help; CREATE SCHEMA reader; CREATE SCHEMA sole; CREATE EXTENSION lo SCHEMA help; GRANT USAGE ON SCHEMA help TO reader;
    CREATE FUNCTION help.h() RETURNS text LANGUAGE sql AS 'SELECT 1::text'; CREATE FUNCTION help.of_nobody() RETURNS text LANGUAGE sql AS 'SELECT 3::text';
    CREATE FUNCTION api.balance(text) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM public.items WHERE tenant = $1';
    CREATE PROCEDURE api.once(text) LANGUAGE sql AS 'DELETE FROM public.items WHERE tenant = $1';
    CREATE TABLE sole.items (a int); CREATE FUNCTION sole.own() RETURNS int LANGUAGE sql AS 'SELECT 4 FROM items';
    GRANT SELECT, TRUNCATE ON items TO reader; GRANT CREATE ON SCHEMA public TO reader;
    CREATE SEQUENCE drawn; ALTER SEQUENCE drawn OWNER TO app_owner; GRANT USAGE ON SEQUENCE drawn TO reader;
    CREATE FUNCTION same(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'; CREATE OPERATOR ~~~~ (LEFTARG = text, RIGHTARG = text, FUNCTION = same);
    /* execute */ CREATE TABLE log (x text); /* guarded */ /* denied */ CREATE TABLE cnt (k text); CREATE TABLE blocked (w text); /* blocked */ GRANT SELECT ON log, cnt, blocked TO mover; CREATE UNIQUE INDEX cnt_k ON cnt (k); CREATE VIEW rate AS SELECT 1 AS a;
    CREATE TABLE vat (a int); CREATE TABLE fees (a int); /* secret */ CREATE TABLE later (a int); /* later */ INSERT INTO vat VALUES (1); INSERT INTO fees VALUES (1); GRANT SELECT ON vat, fees, later TO mover;
    CREATE VIEW taxes AS SELECT a + 0 AS a FROM vat; CREATE MATERIALIZED VIEW charged AS SELECT a FROM vat; CREATE ROLE clerk; GRANT SELECT ON vat, items TO clerk; CREATE VIEW duties AS SELECT a FROM vat; ALTER VIEW duties OWNER TO clerk;
    CREATE VIEW billed AS SELECT i.id, t.a FROM items i, taxes t, charged c, duties d, fees f, later l; CREATE VIEW mine AS SELECT id FROM items; ALTER VIEW mine OWNER TO clerk;
    CREATE VIEW written AS SELECT a FROM vat; CREATE RULE gone AS ON DELETE TO written DO INSTEAD NOTHING;
    CREATE FUNCTION writes() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM FROM written; RETURN OLD; END'; CREATE TRIGGER writes BEFORE DELETE ON items FOR EACH ROW EXECUTE FUNCTION writes();"#;

/// How each object differs on the target, and what the check says about it.
const OTHERWISE: [(&str, &str, &str); 51] = [
    ("'und-u-ks-level2'", "'und-u-ks-level1'", "collation ci, which"),
    ("COPY = english", "COPY = simple", "text search configuration words, which"),
    ("(1, 'EUR')", "(1, 'USD')", "public.currencies is referenced by the moving tables"),
    ("CONSTRAINT of_currency", "CONSTRAINT there", "constraint \"of_currency\" by its name"),
    ("INITIALLY DEFERRED", "INITIALLY IMMEDIATE", "DEFERRABLE INITIALLY DEFERRED of constraint \"once\""),
    ("(tenant, b)", "(tenant, b) DEFERRABLE", "NOT DEFERRABLE of constraint \"at_once\""),
    ("INCREMENT 50", "INCREMENT 1", "increments by 1 on the target, and by 50 on the source"),
    ("a_add", "c_add", "trigger \"b_twice\" by a name that fires as late"),
    (
        "upper($1)",
        "lower($1)",
        "function shout(text), which clients may call, or views over the tables, is different",
    ),
    ("DEFAULT 42", "DEFAULT 43", "view default \"seen.code\" as it is on the source"),
    ("(tenant, id) ON seen", "(tenant) ON seen", "SELECT (id) of view public.seen and"),
    (
        "GROUP BY tenant;",
        "GROUP BY tenant WITH NO DATA;",
        "materialized view \"counted\" as it is on the source",
    ),
    (
        "CREATE FUNCTION label(items)",
        "CREATE FUNCTION other(items)",
        "function label(items), which clients may call",
    ),
    (
        "CREATE FUNCTION fmt(",
        "CREATE FUNCTION fmt(bigint) RETURNS text LANGUAGE sql AS 'SELECT 1::text'; CREATE FUNCTION fmt(",
        "function public.fmt(bigint) of the target has the name",
    ),
    ("LOGIN SUPERUSER", "LOGIN", "SUPERUSER for lord"),
    ("DOMAIN short", "DOMAIN other", "type public.short, which the target lacks"),
    ("(1, 'one')", "(1, 'uno')", "public.kinds is read by views over the moving tables"),
    (
        "VERSION '1.6'",
        "VERSION '1.5'",
        "extension citext is of version 1.6 on the source and 1.5 on the target",
    ),
    ("('x', 'y')", "('x', 'z')", "type grade, which the tables or views over them use, is different"),
    ("('one', 'two')", "('two', 'one')", "type public.mark, which is named by functions that writes"),
    (
        "mover, reader",
        "mover",
        "table public.kinds, which views over the moving tables read: the target lacks SELECT for reader",
    ),
    ("whole int", "whole numeric", "the arithmetic of the type of column \"whole\""),
    ("single real", "single double precision", "the arithmetic of the type of column \"single\""),
    ("paid numeric(10,2)", "paid numeric", "the precision of the type of column \"paid\""),
    ("paid_at timestamp(0)", "paid_at timestamp", "the precision of the type of column \"paid_at\""),
    ("told varchar(9)", "told varchar(10)", "the length of the type of column \"told\""),
    (
        "SELECT count(*) FROM public",
        "SELECT 1 + count(*) FROM public",
        "function api.balance(text), which clients may call",
    ),
    (
        "api.once(",
        "api.other(",
        "procedure api.once(text), which clients may call, or views over the tables, is missing",
    ),
    (
        "SELECT 1::text'; CREATE FUNCTION help.of",
        "SELECT 2::text'; CREATE FUNCTION help.of",
        "function help.h()",
    ),
    ("SELECT, TRUNCATE ON items", "SELECT ON items", "and TRUNCATE for reader"),
    ("GRANT CREATE ON SCHEMA public TO reader", "", "CREATE in schema public for reader"),
    ("GRANT USAGE ON SEQUENCE drawn TO reader", "", "nextval of sequence public.drawn for reader"),
    ("GRANT USAGE ON SCHEMA help TO reader", "", "USAGE of schema help for reader"),
    ("OPERATOR ~~~~ (", "OPERATOR ~~~~~ (", "clients' operator ~~~~(text,text), which clients may call"),
    (
        "/* execute */",
        "REVOKE EXECUTE ON FUNCTION same FROM PUBLIC;",
        "EXECUTE of function public.same(text,text) for public",
    ),
    (
        "lo SCHEMA help",
        "lo SCHEMA public",
        "extension lo is in schema help on the source and in public on the target",
    ),
    (
        "CREATE SCHEMA reader;",
        "CREATE SCHEMA reader; CREATE VIEW reader.items AS SELECT 1 AS a;",
        "the target alone has view reader.items: a role's schema",
    ),
    (
        "/* guarded */",
        "ALTER TABLE log ENABLE ROW LEVEL SECURITY;",
        "public.log, which is named by functions that writes to the moving tables call: the target alone has ROW LEVEL SECURITY",
    ),
    (
        "/* denied */",
        "CREATE TRIGGER deny BEFORE INSERT ON log FOR EACH ROW EXECUTE FUNCTION twice();",
        "the target alone has trigger \"deny\"",
    ),
    (
        "/* blocked */",
        "INSERT INTO blocked VALUES ('all');",
        "public.blocked, which is named by functions that writes to the moving tables call: the target alone has rows",
    ),
    (
        "CREATE UNIQUE INDEX cnt_k",
        "CREATE INDEX cnt_k",
        "public.cnt, which is named by functions that writes to the moving tables call: the target lacks unique key \"cnt_k\"",
    ),
    (
        "rate AS SELECT 1 AS a",
        "rate AS SELECT 2 AS a",
        "public.rate, which is named by functions that writes to the moving tables call: the target lacks what it shows",
    ),
    (
        "SELECT a + 0 AS a",
        "SELECT a + 1 AS a",
        "public.taxes, which is read by views over the moving tables: the target lacks what it shows",
    ),
    (
        "charged AS SELECT a FROM vat",
        "charged AS SELECT a FROM vat WITH NO DATA",
        "public.charged, which is read by views over the moving tables: the target lacks what it shows",
    ),
    (
        "duties OWNER TO clerk",
        "duties OWNER TO reader",
        "public.duties, which is read by views over the moving tables: the target lacks what it shows",
    ),
    ("mine OWNER TO clerk", "mine OWNER TO reader", "view \"mine\" as it is on the source"),
    (
        "/* secret */",
        "ALTER TABLE fees ENABLE ROW LEVEL SECURITY;",
        "public.fees, which is read by views over the moving tables: the target alone has ROW LEVEL SECURITY",
    ),
    (
        "/* later */",
        "INSERT INTO later VALUES (1);",
        "public.later, which is read by views over the moving tables: the target alone has rows",
    ),
    (
        "CREATE RULE gone AS ON DELETE TO written DO INSTEAD NOTHING",
        "",
        "public.written, which is named by functions that writes to the moving tables call: the target lacks what it shows",
    ),
    ("mail email", "mail text", "what the domain refuses of column \"mail\""),
    ("took interval(0)", "took interval", "the precision of the type of column \"took\""),
];

#[test]
fn what_statements_use_beside_tables_is_compared() {
    let mut cluster = cluster(&[]);
    by_superuser(&cluster, 0, &format!("{USED}; GRANT CREATE ON DATABASE {DATABASE} TO app"));
    let mut there = USED.to_owned();
    for (from, into, _) in OTHERWISE {
        assert!(there.contains(from), "{from}");
        there = there.replacen(from, into, 1);
    }
    let off = "ALTER TABLE units DISABLE TRIGGER ALL";
    by_superuser(&cluster, 1, &format!("{there} {off}; REVOKE TEMPORARY ON DATABASE {DATABASE} FROM PUBLIC"));
    by_superuser(
        &cluster,
        1,
        "CREATE OR REPLACE FUNCTION help.of_nobody() RETURNS text LANGUAGE sql AS 'SELECT 5::text'",
    );
    by_superuser(
        &cluster,
        1,
        "CREATE OR REPLACE FUNCTION sole.own() RETURNS int LANGUAGE sql AS 'SELECT 6 FROM items'",
    );
    for (server, lines) in [
        (0, &["app.region = 'eu'"][..]),
        (1, &["app.region = 'us'", "intervalstyle = 'iso_8601'", "max_prepared_transactions = 0"]),
    ] {
        cluster.servers[server].configure(lines).unwrap();
        cluster.servers[server].restart(Stop::Fast).unwrap();
    }
    wait_healthy(&mut cluster.superuser().unwrap()).unwrap();
    let split = plan(&cluster);
    let found = split.findings().unwrap().join("\n");
    let wanted = OTHERWISE.iter().map(|(.., says)| *says).chain([
        "CREATE and TEMPORARY for app",
        "app.region of the server, which texts over the tables read",
        "max_prepared_transactions of the server, '0' and not",
        "foreign key \"of_unit\" as it is on the source",
        "intervalstyle of the server, 'iso_8601' and not 'postgres'",
    ]);
    let missed: Vec<&str> = wanted.filter(|says| !found.contains(says)).collect();
    assert!(missed.is_empty(), "{missed:#?} of\n{found}");
    // Objects that no text over the tables uses, or that are found in the table's own schema, are no finding.
    assert!(!found.contains("of_nobody") && !found.contains("sole"), "{found}");
}

#[test]
fn the_same_on_both_sides_is_no_remark() {
    let cluster = cluster(&[]);
    by_superusers(&cluster, USED);
    assert_eq!(plan(&cluster).findings().unwrap(), [""; 0]);
}
