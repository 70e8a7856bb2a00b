//! Names to which an owner gives another meaning when a session of the mover parses a text: whole rows,
//! generated columns, operators. And functions that a server calls although no text names them.

use shardmaster_tests::attacker::{by_attacker, is_mover, own_the_table, session};
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE};
use shardmaster_tests::fixture::{
    LIMIT, before_the_next_step, by_superusers, client, cluster, cluster_of, plan, source, to_pending,
};
use shardmaster_tests::split::Split;

/// Checks that the check refuses the present objects, and that nobody has got the mover's rights.
fn refuses(cluster: &Cluster, split: &Split<'_>, says: &str) {
    let refused = split.findings().unwrap();
    if refused.is_empty() {
        // This shows what would have happened.
        to_pending(split);
    }
    assert!(!is_mover(cluster), "{says}");
    assert!(refused.iter().any(|text| text.contains(says)), "{says}: {refused:?}");
}

/// Checks that the next step stops at a new object, and continues without it.
fn stops_at(cluster: &Cluster, split: &Split<'_>, says: &str, undo: impl FnOnce()) {
    let error = split.wait("completed", LIMIT).unwrap_err().to_string();
    assert!(!is_mover(cluster), "{says}");
    assert!(error.contains("the mover would run untrusted code") && error.contains(says), "{says}: {error}");
    undo();
    split.call("replay_tail").unwrap();
    split.wait_settled(LIMIT).unwrap();
}

const SHOWN: &str =
    "CREATE FUNCTION shown({row}) RETURNS {as} LANGUAGE sql AS 'SELECT public.evil(''x'')::text::{as}';
                     CREATE CAST ({row} AS {as}) WITH FUNCTION shown({row})";

/// A cast of the table's rows, or of a partition's, which the copy reads by itself.
#[test]
fn a_cast_of_a_whole_row_runs_for_nobody() {
    let cluster = cluster_of(
        &[],
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id)) PARTITION BY LIST (tenant);
         CREATE TABLE items_m PARTITION OF items FOR VALUES IN ('moves');
         CREATE TABLE items_other PARTITION OF items DEFAULT",
    );
    own_the_table(&cluster);
    by_superusers(&cluster, "ALTER TABLE items_m OWNER TO mallory; ALTER TABLE items_other OWNER TO mallory");
    let mut owner = session(&cluster, "shard_a");
    let split = plan(&cluster);
    let mut master = cluster.superuser().unwrap();
    for (expression, row, to) in [
        ("left(t::text, 20)", "items_m", "text"),
        ("left(ARRAY[t]::text, 20)", "items_m[]", "text"),
        ("left(t::varchar, 20)", "items_m", "varchar"),
    ] {
        let map = "SELECT shard_split_map($1, 'items', 'val', $2)";
        master.execute(map, &[&split.id, &expression]).unwrap();
        assert_eq!(split.findings().unwrap(), Vec::<String>::new(), "{expression}");
        owner.batch_execute(&SHOWN.replace("{row}", row).replace("{as}", to)).unwrap();
        refuses(&cluster, &split, &format!("public.shown(public.{row})"));
        owner.batch_execute("DROP FUNCTION shown CASCADE").unwrap();
    }
    // Somebody's cast to his own type is in no text, and blocks nobody.
    source(&cluster)
        .batch_execute(
            "CREATE ROLE stranger; CREATE SCHEMA strange AUTHORIZATION stranger; SET ROLE stranger;
             CREATE TYPE strange.kind AS ENUM ('odd');
             CREATE FUNCTION strange.kind(public.items) RETURNS strange.kind LANGUAGE sql AS $$ SELECT 'odd'::strange.kind $$;
             CREATE CAST (public.items AS strange.kind) WITH FUNCTION strange.kind(public.items)",
        )
        .unwrap();
    let map = "SELECT shard_split_map($1, 'items', 'val', 'left(t::text, 20)')";
    master.execute(map, &[&split.id]).unwrap();
    assert_eq!(split.findings().unwrap(), Vec::<String>::new());
    to_pending(&split);
    for row in ["items", "items_m"] {
        before_the_next_step(&cluster, &split, || {
            owner.batch_execute(&SHOWN.replace("{row}", row).replace("{as}", "text")).unwrap();
        });
        stops_at(&cluster, &split, &format!("public.shown(public.{row})"), || {
            owner.batch_execute("DROP FUNCTION shown CASCADE").unwrap();
        });
    }
}

/// COPY computes a generated shard-by column from its text. A function that matches a name in it better than
/// the original one is not called.
#[test]
fn a_generated_key_is_computed_by_nothing_that_came_later() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    by_superusers(
        &cluster,
        "CREATE SCHEMA lib; GRANT USAGE ON SCHEMA lib TO PUBLIC;
         CREATE FUNCTION lib.fine(anyelement) RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog
            AS 'BEGIN RETURN lower($1::text); END'",
    );
    by_attacker(
        &cluster,
        &format!(
            "CREATE TABLE made (a text, tenant text GENERATED ALWAYS AS (lib.fine(a)) STORED, id int, PRIMARY KEY (a, id));
             GRANT ALL ON made TO {CLIENT}"
        ),
    );
    source(&cluster)
        .batch_execute("INSERT INTO made (a, id) SELECT 'MOVES', generate_series(1, 50)")
        .unwrap();
    cluster.superuser().unwrap().batch_execute("SELECT shard_table_add('made', 'tenant')").unwrap();
    let split = plan(&cluster);
    assert_eq!(split.findings().unwrap(), Vec::<String>::new());
    let mut superuser = cluster.servers[1].superuser(DATABASE).unwrap();
    let better = "CREATE FUNCTION lib.fine(text) RETURNS text LANGUAGE sql IMMUTABLE
                      AS 'SELECT CASE WHEN public.steady(''x'') THEN pg_catalog.lower($1) END'";
    superuser.batch_execute("GRANT CREATE ON SCHEMA lib TO mallory").unwrap();
    session(&cluster, "shard_b").batch_execute(better).unwrap();
    refuses(&cluster, &split, "function lib.fine(text), which belongs to role mallory");
    session(&cluster, "shard_b").batch_execute("DROP FUNCTION lib.fine(text)").unwrap();
    refuses(
        &cluster,
        &split,
        "public.made: column tenant: schema lib, where role mallory can create objects",
    );
    // The source has the column's value, and parses no text.
    source(&cluster).batch_execute("GRANT CREATE ON SCHEMA lib TO mallory").unwrap();
    superuser.batch_execute("REVOKE CREATE ON SCHEMA lib FROM mallory").unwrap();
    assert_eq!(split.findings().unwrap(), Vec::<String>::new());
    to_pending(&split);
    before_the_next_step(&cluster, &split, || {
        superuser.batch_execute("GRANT CREATE ON SCHEMA lib TO mallory").unwrap();
        session(&cluster, "shard_b").batch_execute(better).unwrap();
        client(&cluster).batch_execute("INSERT INTO made (a, id) VALUES ('MOVES', 51)").unwrap();
    });
    stops_at(&cluster, &split, "lib.fine(text)", || {
        session(&cluster, "shard_b").batch_execute("DROP FUNCTION lib.fine(text)").unwrap();
        superuser.batch_execute("REVOKE CREATE ON SCHEMA lib FROM mallory").unwrap();
    });
}

/// Keys are compared by the operator of their index and no other, even if another one matches the column's
/// type better.
#[test]
fn keys_are_compared_by_the_operator_of_their_index() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    by_superusers(
        &cluster,
        "CREATE EXTENSION citext; CREATE TABLE dict (w citext PRIMARY KEY); GRANT ALL ON dict TO PUBLIC;
         INSERT INTO dict SELECT generate_series(1, 60)",
    );
    by_attacker(
        &cluster,
        &format!(
            "CREATE DOMAIN word AS citext;
             CREATE TABLE words (tenant text, w word REFERENCES dict, n int, PRIMARY KEY (tenant, w));
             GRANT ALL ON words TO {CLIENT}"
        ),
    );
    source(&cluster)
        .batch_execute("INSERT INTO words SELECT 'moves', i, i FROM generate_series(1, 50) i")
        .unwrap();
    cluster.superuser().unwrap().batch_execute("SELECT shard_table_add('words', 'tenant')").unwrap();
    for (left, right) in [("word", "word"), ("word", "citext"), ("citext", "word")] {
        by_attacker(
            &cluster,
            &format!(
                "CREATE FUNCTION same({left}, {right}) RETURNS boolean LANGUAGE plpgsql
                     AS $$ BEGIN RETURN public.evil('x') AND $1::text = $2::text; END $$;
                 CREATE OPERATOR = (FUNCTION = same, LEFTARG = {left}, RIGHTARG = {right})"
            ),
        );
    }
    let split = plan(&cluster);
    assert_eq!(split.findings().unwrap(), Vec::<String>::new());
    assert!(!is_mover(&cluster), "in the check");
    to_pending(&split);
    before_the_next_step(&cluster, &split, || {
        client(&cluster).batch_execute("UPDATE words SET n = -n WHERE tenant = 'moves' AND n < 9").unwrap();
    });
    split.wait_settled(LIMIT).unwrap();
    assert!(!is_mover(&cluster), "in a step");
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    split.finish(LIMIT).unwrap();
    assert!(!is_mover(&cluster), "in finish");
}

/// Code that a server calls instead of a named object, or in addition to it.
struct IndirectCode {
    what: &'static str,
    by_superuser: &'static str,
    by_owner: &'static str,
    undo: &'static str,
    says: &'static str,
}

const NOTHING: &str = "SELECT 1";

const REACHED: [IndirectCode; 10] = [
    // NOT (a === b) is planned as a !== b.
    IndirectCode {
        what: "a function of the server behind the negator of an operator",
        by_superuser: NOTHING,
        by_owner: "CREATE OPERATOR !== (FUNCTION = pg_try_advisory_lock, LEFTARG = int, RIGHTARG = int);
                   CREATE OPERATOR === (FUNCTION = int4eq, LEFTARG = int, RIGHTARG = int, NEGATOR = !==);
                   ALTER TABLE items ADD CONSTRAINT c CHECK (NOT (code === 5))",
        undo: "ALTER TABLE items DROP CONSTRAINT c; DROP OPERATOR === (int, int); DROP OPERATOR !== (int, int)",
        says: "public.items: constraint c: function pg_try_advisory_lock(integer,integer), with arguments written by role mallory",
    },
    IndirectCode {
        what: "a function behind the commutator of an operator",
        by_superuser: NOTHING,
        by_owner: "CREATE FUNCTION over(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT public.evil(''x'')';
                   CREATE OPERATOR >>>> (FUNCTION = over, LEFTARG = int, RIGHTARG = int);
                   CREATE OPERATOR <<<< (FUNCTION = int4eq, LEFTARG = int, RIGHTARG = int, COMMUTATOR = >>>>);
                   CREATE INDEX i ON items (code) WHERE code <<<< 5",
        undo: "DROP INDEX i; DROP OPERATOR <<<< (int, int); DROP OPERATOR >>>> (int, int); DROP FUNCTION over",
        says: "public.items: index public.i: function public.over(integer,integer)",
    },
    IndirectCode {
        what: "an estimate for an operator",
        by_superuser: "CREATE FUNCTION guess(internal, oid, internal, int) RETURNS float8 LANGUAGE internal STABLE AS 'eqsel';
                       CREATE FUNCTION guess(internal, oid, internal, smallint, internal) RETURNS float8 LANGUAGE internal STABLE AS 'eqjoinsel';
                       CREATE OPERATOR === (FUNCTION = int4eq, LEFTARG = int, RIGHTARG = int, RESTRICT = guess, JOIN = guess);
                       ALTER FUNCTION guess(internal, oid, internal, int) OWNER TO mallory;
                       ALTER FUNCTION guess(internal, oid, internal, smallint, internal) OWNER TO mallory",
        by_owner: "CREATE INDEX i ON items (code) WHERE code === 5",
        undo: "DROP INDEX i; DROP OPERATOR === (int, int); DROP FUNCTION guess(internal, oid, internal, int);
               DROP FUNCTION guess(internal, oid, internal, smallint, internal)",
        says: "public.items: index public.i: function public.guess(internal,oid,internal,",
    },
    IndirectCode {
        what: "what helps to plan a function",
        by_superuser: "CREATE FUNCTION helps(internal) RETURNS internal LANGUAGE internal AS 'text_starts_with_support';
                       CREATE FUNCTION begins(text, text) RETURNS boolean LANGUAGE internal IMMUTABLE SUPPORT helps AS 'text_starts_with';
                       ALTER FUNCTION helps(internal) OWNER TO mallory",
        by_owner: "ALTER TABLE items ADD CONSTRAINT c CHECK (NOT begins(val, 'x')) NOT VALID",
        undo: "ALTER TABLE items DROP CONSTRAINT c; DROP FUNCTION begins; DROP FUNCTION helps",
        says: "public.items: constraint c: function public.helps(internal)",
    },
    IndirectCode {
        what: "functions of a base type that no value is read or written by",
        by_superuser: "CREATE TYPE raw; CREATE FUNCTION raw_in(cstring) RETURNS raw LANGUAGE internal IMMUTABLE STRICT AS 'textin';
                       CREATE FUNCTION raw_out(raw) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
                       CREATE FUNCTION raw_length(cstring[]) RETURNS int LANGUAGE internal IMMUTABLE STRICT AS 'varchartypmodin';
                       CREATE FUNCTION raw_look(internal) RETURNS boolean LANGUAGE internal STABLE STRICT AS 'ts_typanalyze';
                       CREATE TYPE raw (INPUT = raw_in, OUTPUT = raw_out, TYPMOD_IN = raw_length, ANALYZE = raw_look, LIKE = text);
                       ALTER FUNCTION raw_length OWNER TO mallory",
        by_owner: "ALTER TABLE items ADD r raw",
        undo: "DROP TYPE raw CASCADE",
        says: "raw_length(cstring[])",
    },
    IndirectCode {
        what: "a cast of arrays of a type",
        by_superuser: NOTHING,
        by_owner: "CREATE TYPE mood AS ENUM ('good'); ALTER TABLE items ADD m mood;
                   CREATE FUNCTION shown(mood[]) RETURNS text LANGUAGE sql AS 'SELECT evil(''x'')::text';
                   CREATE CAST (mood[] AS text) WITH FUNCTION shown(mood[])",
        undo: "ALTER TABLE items DROP m; DROP TYPE mood CASCADE",
        says: "public.shown(public.mood[])",
    },
    IndirectCode {
        what: "a cast of rows in a column",
        by_superuser: NOTHING,
        by_owner: "CREATE TABLE other (n int); CREATE DOMAIN others AS other[]; ALTER TABLE items ADD o others;
                   CREATE FUNCTION shown(other) RETURNS text LANGUAGE sql AS 'SELECT evil(''x'')::text';
                   CREATE CAST (other AS text) WITH FUNCTION shown(other)",
        undo: "ALTER TABLE items DROP o; DROP TABLE other CASCADE",
        says: "public.shown(public.other)",
    },
    IndirectCode {
        what: "an operator class that a type of the server goes by",
        by_superuser: "CREATE FUNCTION hashed(json) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
                       CREATE FUNCTION same(json, json) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
                       CREATE OPERATOR = (FUNCTION = same, LEFTARG = json, RIGHTARG = json);
                       CREATE OPERATOR CLASS odd DEFAULT FOR TYPE json USING hash AS OPERATOR 1 =, FUNCTION 1 hashed(json);
                       ALTER FUNCTION hashed OWNER TO mallory",
        by_owner: "ALTER TABLE items ADD j json",
        undo: "ALTER TABLE items DROP j; DROP OPERATOR FAMILY odd USING hash; DROP OPERATOR = (json, json);
               DROP FUNCTION same(json, json); DROP FUNCTION hashed",
        says: "public.items: column j: function public.hashed(json)",
    },
    IndirectCode {
        what: "what has been added to an operator family of the server",
        by_superuser: "CREATE FUNCTION apart(int, text) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 0';
                       ALTER OPERATOR FAMILY integer_ops USING btree ADD FUNCTION 1 (int, text) apart(int, text);
                       ALTER FUNCTION apart OWNER TO mallory",
        by_owner: "CREATE INDEX i ON items (code)",
        undo: "DROP INDEX i; ALTER OPERATOR FAMILY integer_ops USING btree DROP FUNCTION 1 (int, text); DROP FUNCTION apart",
        says: "function public.apart(integer,text)",
    },
    IndirectCode {
        what: "a cast of the multiranges of a range",
        by_superuser: NOTHING,
        by_owner: "CREATE TYPE span AS RANGE (SUBTYPE = int, MULTIRANGE_TYPE_NAME = spans); ALTER TABLE items ADD s span;
                   CREATE FUNCTION shown(spans) RETURNS text LANGUAGE sql AS 'SELECT evil(''x'')::text';
                   CREATE CAST (spans AS text) WITH FUNCTION shown(spans)",
        undo: "ALTER TABLE items DROP s; DROP TYPE span CASCADE",
        says: "public.shown(public.spans)",
    },
];

/// Each is a finding on either side, before anything is called.
#[test]
fn what_is_called_without_being_named_is_looked_at() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    let split = plan(&cluster);
    for server in &cluster.servers {
        let mut superuser = server.superuser(DATABASE).unwrap();
        for reached in &REACHED {
            let version: i32 =
                superuser.query_one("SELECT current_setting('server_version_num')::int", &[]).unwrap().get(0);
            if version < 140_000 && reached.by_owner.contains("MULTIRANGE") {
                continue;
            }
            superuser
                .batch_execute(reached.by_superuser)
                .unwrap_or_else(|e| panic!("{}: {e:?}", reached.what));
            let mut owner = session(&cluster, server.name());
            owner.batch_execute(reached.by_owner).unwrap_or_else(|e| panic!("{}: {e:?}", reached.what));
            let found = split.findings().unwrap();
            let says = |text: &String| text.contains("code of owners: ") && text.contains(reached.says);
            assert!(found.iter().any(says), "{} on {}: {found:?}", reached.what, server.name());
            superuser.batch_execute(reached.undo).unwrap_or_else(|e| panic!("{}: {e:?}", reached.what));
        }
    }
    assert_eq!(split.findings().unwrap(), Vec::<String>::new());
    assert!(!is_mover(&cluster));
}
