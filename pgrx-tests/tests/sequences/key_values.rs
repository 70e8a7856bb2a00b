//! Where values of keys come from. Sequences that are found are raised on the target, and what is not found
//! must be accepted by name before anything moves. The check has no remark about keys of ordinary schemas.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::constraints::trust_owner;
use shardmaster_tests::fixture::{LIMIT, by_owner, cluster, plan, to_pending};
use shardmaster_tests::split::Split;
use std::time::{Duration, Instant};

/// A table with a key, and statements that fill it. `%` stands for the table.
struct Shape {
    table: &'static str,
    made_by: &'static str,
    is: Expected,
}

enum Expected {
    /// This sequence is raised. It is 70,000 further on the source.
    Raised(&'static str),
    /// The check makes a remark with this text.
    Told(&'static str),
}

use Expected::{Raised, Told};

const fn shape(table: &'static str, made_by: &'static str, is: Expected) -> Shape {
    Shape { table, made_by, is }
}

const MADE: &str = "nextval() by a name that is not found";
const RUN: &str = "runs a text that it builds";

/// Statements of a trigger's function, which come before it returns the row.
const BY_TRIGGER: [(&str, &str, &str, Expected); 22] = [
    ("t1", "", "EXECUTE format('SELECT max(n) + 1 FROM %I_of', TG_TABLE_NAME) INTO NEW.id;", Told(RUN)),
    (
        "t2",
        "",
        "EXECUTE format('INSERT INTO %I_no DEFAULT VALUES RETURNING id', TG_TABLE_NAME) INTO NEW.id;",
        Told(RUN),
    ),
    ("t3", "", "NEW.id := nextval('s' || '_t3');", Told(MADE)),
    (
        "t4",
        "CREATE TABLE conf (t text, s text)",
        "SELECT nextval(s) INTO NEW.id FROM conf WHERE t = TG_TABLE_NAME;",
        Told(MADE),
    ),
    (
        "t5",
        "CREATE FUNCTION op(text) RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''s_t5'')'; CREATE OPERATOR ## (RIGHTARG = text, FUNCTION = op)",
        "NEW.id := ## 'x'::text;",
        Raised("s_t5"),
    ),
    (
        "t6",
        "CREATE FUNCTION step(bigint, int) RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''s_t6'')'; CREATE AGGREGATE next_by(int) (SFUNC = step, STYPE = bigint)",
        "SELECT next_by(1) INTO NEW.id;",
        Raised("s_t6"),
    ),
    (
        "t7",
        "CREATE TYPE odd AS (a int); CREATE FUNCTION of_odd(odd) RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''s_t7'')'; CREATE CAST (odd AS bigint) WITH FUNCTION of_odd(odd)",
        "NEW.id := (ROW(1)::odd)::bigint;",
        Raised("s_t7"),
    ),
    ("t8", "", r"NEW.id := nextval(E'\x73_t8');", Told(MADE)),
    ("t9", "", "NEW.id := nextval('s'\n '_t9');", Told(MADE)),
    (
        "t10",
        "CREATE FUNCTION \"Nö\"() RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''s_t10'')'",
        r#"NEW.id := U&"N\00f6"();"#,
        Told("a name with escapes"),
    ),
    (
        "t11",
        "CREATE PROCEDURE fill(INOUT n bigint) LANGUAGE plpgsql AS 'BEGIN n := nextval(''s'' || ''_t11''); END'",
        "CALL fill(NEW.id);",
        Told(MADE),
    ),
    ("t12", "", "NEW.id := lo_creat(-1);", Told("calls lo_creat()")),
    (
        "t13",
        "",
        "SELECT last_value + 1 INTO NEW.id FROM pg_sequences WHERE sequencename = 's_' || TG_TABLE_NAME;",
        Told("reads pg_sequences"),
    ),
    ("t14", "", "NEW.id := setval(to_regclass('s_' || TG_TABLE_NAME), 5);", Told("calls setval()")),
    (
        "t15",
        "",
        "NEW.id := current_setting('a.n', true)::bigint + 1; PERFORM set_config('a.n', NEW.id::text, false);",
        Told("counts by a setting"),
    ),
    ("t16", "", "NEW.id := txid_current();", Told("calls txid_current()")),
    (
        "t17",
        "",
        "NEW := jsonb_populate_record(NEW, jsonb_build_object('id', nextval(concat('s_', TG_TABLE_NAME))));",
        Told(MADE),
    ),
    (
        "t18",
        "",
        "DECLARE c refcursor; BEGIN OPEN c FOR EXECUTE format('SELECT nextval(%L)', 's_t18'); FETCH c INTO NEW.id; END;",
        Told(RUN),
    ),
    (
        "t19",
        "CREATE FUNCTION made() RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''s'' || ''_t19'')'; CREATE TABLE of_default (id bigint DEFAULT made())",
        "INSERT INTO of_default DEFAULT VALUES RETURNING id INTO NEW.id;",
        Told(MADE),
    ),
    (
        "t20",
        "",
        "DECLARE r record; BEGIN SELECT NEW.tenant, nextval('s_' || 't20'), NEW.v INTO r; RETURN r; END;",
        Told(MADE),
    ),
    (
        "t21",
        "CREATE TABLE kept (id bigint)",
        "SELECT coalesce(max(id), 0) + 1 INTO NEW.id FROM kept;",
        Told("public.kept is named by"),
    ),
    (
        "t22",
        "CREATE FUNCTION a_name_that_is_longer_than_the_sixty_three_letters_that_the_server_keeps() RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''s_t22'')'",
        "NEW.id := a_name_that_is_longer_than_the_sixty_three_letters_that_the_server_keeps();",
        Raised("s_t22"),
    ),
];

const OTHERS: [Shape; 21] = [
    // Clients' functions, which pass a number on, to any depth, or write through a view.
    shape(
        "o1",
        "CREATE TABLE numbers (id bigserial); CREATE FUNCTION put(t text, i bigint) RETURNS void LANGUAGE sql AS 'INSERT INTO %(tenant, id) VALUES (t, i)';
         CREATE FUNCTION put_on(t text, i bigint) RETURNS void LANGUAGE sql AS 'SELECT put(t, i)';
         CREATE FUNCTION add(t text) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM put_on(t, nextval(''numbers_id_seq'')); IF false THEN PERFORM add(t); END IF; END'",
        Raised("numbers_id_seq"),
    ),
    shape(
        "o2",
        "CREATE VIEW v2 AS SELECT tenant, id FROM %; CREATE FUNCTION next2() RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''s_o2'')';
         CREATE FUNCTION add2(t text) RETURNS void LANGUAGE plpgsql AS 'BEGIN INSERT INTO v2 VALUES (t, next2()); END'",
        Raised("s_o2"),
    ),
    shape(
        "o3",
        "CREATE FUNCTION \"Put It\"(t text, i bigint) RETURNS void LANGUAGE sql AS 'INSERT INTO %(tenant, id) VALUES (t, i)';
         CREATE FUNCTION add3(t text) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM \"Put It\"(t, nextval(''s_o3'')); END'",
        Raised("s_o3"),
    ),
    shape(
        "o4",
        "CREATE FUNCTION put4(t text, i bigint) RETURNS void LANGUAGE sql AS 'INSERT INTO %(tenant, id) VALUES (t, i)';
         CREATE FUNCTION add4(t text) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM put4(t, nextval(''s'' || ''_o4'')); END'",
        Told(MADE),
    ),
    shape("o5", "CREATE FUNCTION add5(t text) RETURNS void BEGIN ATOMIC INSERT INTO %(tenant, id) VALUES (t, nextval('s_o5')); END", Raised("s_o5")),
    shape(
        "o6",
        "CREATE TABLE last6 (n bigint); CREATE FUNCTION add6(t text) RETURNS void LANGUAGE plpgsql AS
             'DECLARE i bigint; BEGIN UPDATE last6 SET n = n + 1 RETURNING n INTO i; INSERT INTO %(tenant, id) VALUES (t, i); END'",
        Told("public.last6 is what functions count by"),
    ),
    // Triggers and rules of other tables.
    shape(
        "o7",
        "CREATE TABLE inbox7 (id bigserial, who text); CREATE FUNCTION pass7() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO %(tenant, id) VALUES (NEW.who, NEW.id); RETURN NEW; END'; CREATE TRIGGER t AFTER INSERT ON inbox7 FOR EACH ROW EXECUTE FUNCTION pass7()",
        Raised("inbox7_id_seq"),
    ),
    shape(
        "o8",
        "CREATE TABLE inbox8 (id bigint GENERATED BY DEFAULT AS IDENTITY, who text);
         CREATE RULE r AS ON INSERT TO inbox8 DO INSTEAD INSERT INTO %(tenant, id) VALUES (NEW.who, NEW.id)",
        Raised("inbox8_id_seq"),
    ),
    shape(
        "o9",
        "CREATE TABLE inbox9 (id bigint, who text); CREATE FUNCTION pass9() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO %(tenant, id) SELECT who, id FROM new_rows; RETURN NULL; END';
         CREATE TRIGGER t AFTER INSERT ON inbox9 REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION pass9();
         CREATE TABLE first9 (id bigserial, who text); CREATE RULE r AS ON INSERT TO first9 DO ALSO INSERT INTO inbox9 VALUES (NEW.id, NEW.who)",
        Raised("first9_id_seq"),
    ),
    shape(
        "o10",
        "CREATE FUNCTION made10() RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''s'' || ''_o10'')'; CREATE TABLE inbox10 (id bigint DEFAULT made10(), who text);
         CREATE RULE r AS ON INSERT TO inbox10 DO ALSO INSERT INTO %(tenant, id) VALUES (NEW.who, NEW.id)",
        Told(MADE),
    ),
    shape(
        "o11",
        "CREATE TABLE inbox11 (who text); CREATE RULE r AS ON INSERT TO inbox11 DO ALSO INSERT INTO %(tenant, id) VALUES (NEW.who, nextval(('s_' || 'o11')::regclass))",
        Told(MADE),
    ),
    // Views.
    shape("o12", "CREATE VIEW v12 AS SELECT tenant, id FROM %; ALTER VIEW v12 ALTER id SET DEFAULT nextval('s_' || 'o12')", Told(MADE)),
    shape(
        "o13",
        "CREATE VIEW v13 AS SELECT tenant, id FROM %; CREATE FUNCTION put13() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN EXECUTE format(''INSERT INTO %I VALUES ($1, 1)'', TG_ARGV[0]) USING NEW.tenant; RETURN NEW; END';
         CREATE TRIGGER t INSTEAD OF INSERT ON v13 FOR EACH ROW EXECUTE FUNCTION put13('o13')",
        Told(RUN),
    ),
    // Other statements, and other places.
    shape(
        "o14",
        "CREATE FUNCTION add14(t text) RETURNS void LANGUAGE sql AS
             'INSERT INTO %(tenant, v) VALUES (t, ''x'') ON CONFLICT (tenant, id) DO UPDATE SET id = nextval(''s_'' || ''o14'')'",
        Told(MADE),
    ),
    shape(
        "o15",
        "CREATE FUNCTION add15(t text) RETURNS void LANGUAGE sql AS 'MERGE INTO % USING (VALUES (t)) w (t) ON false
             WHEN NOT MATCHED THEN INSERT (tenant, id) VALUES (w.t, nextval(''s_'' || ''o15''))'",
        Told(MADE),
    ),
    shape(
        "o16",
        "CREATE FUNCTION later16() RETURNS trigger LANGUAGE plpgsql AS 'DECLARE i bigint; BEGIN
             i := nextval(''s_'' || TG_TABLE_NAME); UPDATE % SET id = i WHERE v = NEW.v; RETURN NULL; END';
         CREATE TRIGGER t AFTER INSERT ON % FOR EACH ROW EXECUTE FUNCTION later16()",
        Told(MADE),
    ),
    shape(
        "o17",
        "CREATE FUNCTION made17() RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''s_'' || ''o17'')'; CREATE DOMAIN number17 AS bigint DEFAULT made17();
         ALTER TABLE % ALTER id TYPE number17",
        Told(MADE),
    ),
    shape(
        "o18",
        "ALTER TABLE % ADD of_no bigint, ADD no bigint GENERATED ALWAYS AS (of_no * 2) STORED, ADD UNIQUE (tenant, no); CREATE FUNCTION fill18() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN NEW.of_no := nextval(''s_'' || TG_TABLE_NAME); RETURN NEW; END'; CREATE TRIGGER t BEFORE INSERT ON % FOR EACH ROW EXECUTE FUNCTION fill18()",
        Told(MADE),
    ),
    shape("o19", "ALTER TABLE % ALTER id SET DEFAULT lastval()", Told("calls lastval()")),
    shape(
        "o20",
        "DROP TABLE %; CREATE TABLE % (tenant text, id bigint, PRIMARY KEY (tenant, id)) PARTITION BY HASH (tenant); CREATE TABLE %_one PARTITION OF % FOR VALUES WITH (MODULUS 1, REMAINDER 0);
         CREATE FUNCTION fill20() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.id := nextval(''s_'' || left(TG_TABLE_NAME, 3)); RETURN NEW; END';
         CREATE TRIGGER t BEFORE INSERT ON %_one FOR EACH ROW EXECUTE FUNCTION fill20()",
        Told(MADE),
    ),
    // Each shard has other rows, but the key must be unique over all of them.
    shape(
        "o21",
        "DROP TABLE %; CREATE TABLE % (tenant text, id bigint PRIMARY KEY); CREATE FUNCTION fill21() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN SELECT coalesce(max(id), 0) + 1 INTO NEW.id FROM %; RETURN NEW; END'; CREATE TRIGGER t BEFORE INSERT ON % FOR EACH ROW EXECUTE FUNCTION fill21()",
        Told("counts the existing rows"),
    ),
];

fn on_both(cluster: &Cluster, statements: &str) {
    (0..2).for_each(|server| by_owner(cluster, server, statements));
}

fn add(cluster: &Cluster, table: &str) {
    let add = format!("SELECT shard_table_add('{table}', 'tenant')");
    cluster.superuser().unwrap().batch_execute(&add).unwrap();
}

fn shapes() -> Vec<(String, String, Expected)> {
    let by_trigger = BY_TRIGGER.into_iter().map(|(table, first, does, is)| {
        let statements = format!(
            "{first}; CREATE FUNCTION fill_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {does} RETURN NEW; END $$;
             CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION fill_{table}()"
        );
        (table.to_owned(), statements, is)
    });
    let others = OTHERS.into_iter().map(|Shape { table, made_by, is }| {
        // %I belongs to format() and stays.
        let statements = made_by.replace("%I", "\0").replace('%', table).replace('\0', "%I");
        (table.to_owned(), statements, is)
    });
    by_trigger.chain(others).collect()
}

#[test]
fn what_gives_keys_their_values_is_raised_or_told() {
    let cluster = cluster(&[]);
    let shapes = shapes();
    for (table, statements, is) in &shapes {
        on_both(
            &cluster,
            &format!(
                "SET client_min_messages = error; SET check_function_bodies = off; CREATE SEQUENCE s_{table};
                 CREATE TABLE {table} (tenant text, id bigint, v text, PRIMARY KEY (tenant, id)); {statements}"
            ),
        );
        add(&cluster, table);
        if let Raised(sequence) = is {
            by_owner(&cluster, 0, &format!("SELECT setval('{sequence}', 70000)"));
        }
    }
    trust_owner(&cluster);
    let split = plan(&cluster);
    let found = split.findings().unwrap();
    let is_told = |table: &str, text: &str| {
        let of_key = format!("source: values of keys: {table}.");
        found.iter().any(|finding| {
            finding.contains(text)
                && (finding.starts_with(&of_key) || finding.starts_with("source: tables that functions name"))
        })
    };
    let mut silent = Vec::new();
    for (table, _, is) in &shapes {
        match is {
            Told(text) if !is_told(table, text) => silent.push(table),
            Raised(_)
                if is_told(table, "")
                    && found.iter().any(|finding| finding.contains(&format!(": {table}."))) =>
            {
                silent.push(table)
            }
            Told(_) | Raised(_) => {}
        }
    }
    assert!(silent.is_empty(), "{silent:?}: {found:#?}");
    split.accept_remarks().unwrap();
    split.run(|_| ()).unwrap();
    let mut behind = Vec::new();
    for sequence in shapes.iter().filter_map(|(_, _, is)| match is {
        Raised(sequence) => Some(sequence),
        Told(_) => None,
    }) {
        let next = format!("SELECT nextval('{sequence}')");
        let next: i64 = cluster.servers[1].superuser(DATABASE).unwrap().query_one(&next, &[]).unwrap().get(0);
        if !(70_000..80_000).contains(&next) {
            behind.push((sequence, next));
        }
    }
    assert_eq!(behind, []);
    split.finish(LIMIT).unwrap();
}

/// Ordinary schemas of applications.
const PLAIN: &str = "
    CREATE TABLE a_serial (tenant text, id bigserial, PRIMARY KEY (tenant, id)); CREATE TABLE an_identity (tenant text, id bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (tenant, id));
    CREATE TABLE a_uuid (tenant text, id uuid PRIMARY KEY DEFAULT gen_random_uuid(), at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz, UNIQUE (tenant, at));
    CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.updated_at := now(); RETURN NEW; END';
    CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON a_uuid FOR EACH ROW EXECUTE FUNCTION touch();
    CREATE TABLE a_slug (tenant text, id bigserial, title text, slug text, email text, code text, PRIMARY KEY (tenant, id), UNIQUE (tenant, slug), UNIQUE (tenant, email), UNIQUE (tenant, code));
    CREATE FUNCTION slugify(t text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT trim('-' FROM regexp_replace(lower(t), '[^a-z0-9]+', '-', 'g')) $$;
    CREATE FUNCTION short_code() RETURNS text LANGUAGE plpgsql AS $$ DECLARE c text := ''; i int; BEGIN FOR i IN 1..8 LOOP c := c || substr('abcdef0123', floor(random() * 10)::int + 1, 1); END LOOP; RETURN c; END $$;
    ALTER TABLE a_slug ALTER code SET DEFAULT short_code();
    CREATE FUNCTION set_slug() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE base text := slugify(NEW.title); candidate text; n int := 1;
        BEGIN NEW.email := lower(trim(NEW.email)); candidate := base;
              WHILE EXISTS (SELECT 1 FROM a_slug s WHERE s.tenant = NEW.tenant AND s.slug = candidate) LOOP n := n + 1; candidate := base || '-' || n; END LOOP;
              NEW.slug := candidate; RETURN NEW; END $$;
    CREATE TRIGGER set_slug BEFORE INSERT OR UPDATE OF title ON a_slug FOR EACH ROW EXECUTE FUNCTION set_slug();
    CREATE TABLE a_tenant (tenant text, id uuid DEFAULT gen_random_uuid(), PRIMARY KEY (tenant, id));
    CREATE FUNCTION set_tenant() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.tenant := coalesce(NEW.tenant, current_setting('app.tenant')); RETURN NEW; END $$;
    CREATE TRIGGER set_tenant BEFORE INSERT ON a_tenant FOR EACH ROW EXECUTE FUNCTION set_tenant();
    CREATE TABLE a_project (tenant text, id bigserial, last_no int NOT NULL DEFAULT 0, PRIMARY KEY (tenant, id));
    CREATE TABLE an_issue (tenant text, id bigserial, project bigint, no int, PRIMARY KEY (tenant, id), UNIQUE (tenant, project, no));
    CREATE FUNCTION set_no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN UPDATE a_project SET last_no = last_no + 1 WHERE id = NEW.project RETURNING last_no INTO NEW.no; RETURN NEW; END';
    CREATE TRIGGER set_no BEFORE INSERT ON an_issue FOR EACH ROW EXECUTE FUNCTION set_no();
    CREATE TABLE an_invoice (tenant text, no int, at date, PRIMARY KEY (tenant, no));
    CREATE FUNCTION set_invoice_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.no IS NULL THEN PERFORM pg_advisory_xact_lock(hashtext(NEW.tenant));
        SELECT coalesce(max(no), 0) + 1 INTO NEW.no FROM an_invoice WHERE tenant = NEW.tenant; END IF; RETURN NEW; END $$;
    CREATE TRIGGER set_invoice_no BEFORE INSERT ON an_invoice FOR EACH ROW EXECUTE FUNCTION set_invoice_no();
    CREATE FUNCTION write_down() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('INSERT INTO %I_log SELECT ($1).*', TG_TABLE_NAME) USING NEW; RETURN NULL; END $$;
    CREATE TRIGGER write_down AFTER INSERT ON a_serial FOR EACH ROW EXECUTE FUNCTION write_down();
    CREATE TRIGGER write_down AFTER UPDATE ON an_issue FOR EACH ROW EXECUTE FUNCTION write_down();
    CREATE TABLE a_day (tenant text, day date, n int, PRIMARY KEY (tenant, day));
    CREATE FUNCTION count_up(t text) RETURNS void LANGUAGE sql AS 'INSERT INTO a_day VALUES (t, current_date, 1) ON CONFLICT (tenant, day) DO UPDATE SET n = a_day.n + 1';
    CREATE FUNCTION open_issue(t text, p bigint) RETURNS bigint LANGUAGE plpgsql AS 'DECLARE i bigint; BEGIN INSERT INTO an_issue (tenant, project) VALUES (t, p) RETURNING id INTO i; PERFORM count_up(t); RETURN i; END';
    CREATE FUNCTION archive() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('CREATE TABLE IF NOT EXISTS %I (LIKE a_day)', 'a_day_' || to_char(now(), 'YYYY'));
        EXECUTE 'INSERT INTO a_day_old SELECT * FROM a_day WHERE day < ' || quote_literal(current_date - 365); EXECUTE format('UPDATE a_day SET n = 0 WHERE day = %L', current_date); END $$;
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('x', TG_TABLE_NAME); RETURN coalesce(NEW, OLD); END $$;
    CREATE TRIGGER tell AFTER INSERT OR UPDATE OR DELETE ON a_day FOR EACH ROW EXECUTE FUNCTION tell();
    CREATE TRIGGER tell_first BEFORE DELETE ON a_day FOR EACH ROW EXECUTE FUNCTION tell();
    CREATE TABLE a_number (tenant text, no text DEFAULT 'INV-' || lpad(nextval('a_serial_id_seq')::text, 8, '0'), PRIMARY KEY (tenant, no));
    CREATE VIEW issues AS SELECT i.tenant, i.no, p.id FROM an_issue i JOIN a_project p ON p.tenant = i.tenant AND p.id = i.project";

const PLAIN_TABLES: [&str; 10] = [
    "a_serial",
    "an_identity",
    "a_uuid",
    "a_slug",
    "a_tenant",
    "a_project",
    "an_issue",
    "an_invoice",
    "a_day",
    "a_number",
];

/// The schema also has thousands of functions that call each other in circles, and the check still ends soon.
#[test]
fn what_ordinary_schemas_have_is_no_remark() {
    let cluster = cluster(&[]);
    on_both(&cluster, PLAIN);
    on_both(
        &cluster,
        "DO $$ BEGIN FOR i IN 1..3000 LOOP
             EXECUTE format('CREATE FUNCTION round_%s(t text) RETURNS void LANGUAGE plpgsql AS %L', i,
                 format('BEGIN PERFORM round_%s(t); PERFORM round_%s(t); PERFORM open_issue(t, 1); END', i % 3000 + 1, i * 7 % 3000 + 1));
         END LOOP; END $$",
    );
    PLAIN_TABLES.iter().for_each(|table| add(&cluster, table));
    trust_owner(&cluster);
    let split = plan(&cluster);
    let began = Instant::now();
    assert_eq!(split.findings_with_hints().unwrap(), [""; 0]);
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
}

fn refused(split: &Split<'_>, text: &str) {
    split.call("cutover").unwrap();
    let failure = split.failure(LIMIT).unwrap();
    assert!(failure.contains(text) && failure.contains("which the check had not found"), "{failure}");
    assert_eq!(split.phase().unwrap(), "cutover_pending");
}

#[test]
fn what_comes_while_a_split_copies_keeps_it_from_its_cutover() {
    let cluster = cluster(&[]);
    let function = |does: &str| {
        on_both(
            &cluster,
            &format!(
                "CREATE OR REPLACE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {does} RETURN NEW; END $$"
            ),
        );
    };
    on_both(
        &cluster,
        "CREATE SEQUENCE s; CREATE TABLE n (tenant text, id bigint, PRIMARY KEY (tenant, id)); CREATE TABLE last (n bigint)",
    );
    function("NEW.id := nextval('s');");
    on_both(&cluster, "CREATE TRIGGER fill BEFORE INSERT ON n FOR EACH ROW EXECUTE FUNCTION fill()");
    add(&cluster, "n");
    trust_owner(&cluster);
    let split = plan(&cluster);
    assert_eq!(split.findings_with_hints().unwrap(), [""; 0]);
    to_pending(&split);
    for (does, text) in [
        ("UPDATE last SET n = n + 1 RETURNING n INTO NEW.id;", "functions count by table public.last"),
        ("NEW.id := nextval('s' || '');", "n.id by public.fill(), which calls nextval() by a name"),
    ] {
        function(does);
        refused(&split, text);
        split.call("resume").unwrap();
    }
    function("NEW.id := nextval('s');");
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    split.finish(LIMIT).unwrap();
}
