//! Tables that a shard lacks and another one has are created there. Existing objects are not changed.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::deployer::{TABLES, ZOO, dba, stage};
use shardmaster_tests::fixture::{LIMIT, by_superuser, by_superusers, to_pending};
use shardmaster_tests::queries::error;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

const COPY: &str = "SELECT kind, object FROM shard_schema_copy('shard_a', 'shard_b')";

fn differences(client: &mut Client) -> Vec<String> {
    let query = "SELECT concat_ws(' ', kind, object || ':', coalesce(in_a, '-'), '|', coalesce(in_b, '-')) FROM shard_schema_diff('shard_a', 'shard_b')";
    client.query(query, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

fn made(client: &mut Client, call: &str) -> Vec<String> {
    let rows = client.query(call, &[]).unwrap();
    rows.iter().map(|row| format!("{} {}", row.get::<_, String>(0), row.get::<_, String>(1))).collect()
}

#[test]
fn a_newcomer_gets_all_that_its_tables_need() {
    let cluster = stage();
    // The server prints these lists of literals differently after reading its own output.
    by_superuser(
        &cluster,
        0,
        "ALTER TABLE \"Job\" ADD st varchar(9) CHECK (st IN ('a', 'b, it''s')); ALTER TABLE ev ADD st varchar CHECK (st IN ('a', 'b'));
         CREATE UNIQUE INDEX in_use ON \"Job\" (tenant, st) WHERE st IN ('a', 'b');
         CREATE POLICY partly ON \"Job\" USING (st IN ('a', 'b'))",
    );
    by_superuser(
        &cluster,
        0,
        "INSERT INTO kind VALUES ('moves', 1); INSERT INTO \"Job\" (tenant, k, p) VALUES ('moves', 1, '(1,x)'), ('moves', NULL, NULL);
         INSERT INTO ev VALUES ('moves', 1, '2020-05-05'), ('moves', 2, '2022-01-01')",
    );
    let mut dba = dba(&cluster);
    let before = differences(&mut dba);
    let would =
        made(&mut dba, "SELECT kind, object FROM shard_schema_copy('shard_a', 'shard_b', dry_run => true)");
    assert_eq!(differences(&mut dba), before, "a dry run makes nothing");
    assert_eq!(made(&mut dba, COPY), would);
    assert_eq!(differences(&mut dba), Vec::<String>::new());
    assert_eq!(made(&mut dba, COPY), Vec::<String>::new(), "made once");
    let owner: String = cluster.servers[1]
        .superuser(DATABASE)
        .unwrap()
        .query_one("SELECT string_agg(DISTINCT relowner::regrole::text, ',') FROM pg_class WHERE relnamespace = 'public'::regnamespace", &[])
        .unwrap()
        .get(0);
    assert_eq!(owner, OWNER);
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
    let there: i64 = cluster.servers[1]
        .superuser(DATABASE)
        .unwrap()
        .query_one(
            "SELECT (SELECT count(*) FROM \"Job\") + (SELECT count(*) FROM ev) + (SELECT count(*) FROM kind)",
            &[],
        )
        .unwrap()
        .get(0);
    assert_eq!(there, 5);
}

fn tables_there(cluster: &Cluster) -> i64 {
    let query = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    cluster.servers[1].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0)
}

#[test]
fn nothing_is_made_where_something_is_otherwise_there() {
    let cluster = stage();
    let mut dba = dba(&cluster);
    // If the call fails at its end, nothing of it is left.
    by_superuser(&cluster, 1, "DROP ROLE reader");
    let (state, message) = error(&mut dba, COPY);
    assert_eq!(state, "42704", "{message}");
    assert!(message.contains("role \"reader\" does not exist"), "{message}");
    assert_eq!(tables_there(&cluster), 0);
    by_superuser(&cluster, 1, "CREATE ROLE reader LOGIN");
    for (there, problem) in [
        (
            "CREATE TABLE kind (tenant text NOT NULL, id int NOT NULL)",
            "primary key kind: kind_pkey is missing, of a table that exists",
        ),
        (
            "CREATE TABLE kind (tenant text, id bigint, PRIMARY KEY (tenant, id))",
            "column kind.id is different there",
        ),
        ("CREATE TABLE kind (id int NOT NULL)", "column kind.tenant is missing, of a table that exists"),
        ("CREATE TYPE mood AS ENUM ('sad')", ""),
        (
            "CREATE TABLE ev (tenant text NOT NULL, id int NOT NULL, at date NOT NULL, v int DEFAULT 1 NOT NULL) PARTITION BY LIST (at)",
            "table ev is different there",
        ),
    ] {
        by_superuser(&cluster, 1, &format!("SET ROLE {OWNER}; {there}"));
        let before = tables_there(&cluster);
        let (state, message) = error(&mut dba, COPY);
        match problem {
            "" => assert_eq!(state, "42710", "{message}"),
            _ => assert_eq!(
                (state.as_str(), message),
                (
                    "55000",
                    format!(
                        "the tables of shard \"shard_a\" cannot be created on shard \"shard_b\": {problem}"
                    )
                )
            ),
        }
        assert_eq!(tables_there(&cluster), before);
        by_superuser(&cluster, 1, "DROP TABLE IF EXISTS kind, ev; DROP TYPE IF EXISTS mood");
    }
    by_superuser(&cluster, 0, "CREATE EXTENSION citext; ALTER TABLE kind ADD c citext");
    let (state, message) = error(&mut dba, COPY);
    assert_eq!(state, "55000");
    assert!(message.ends_with("extension citext is missing: CREATE EXTENSION"), "{message}");
    by_superuser(&cluster, 1, "CREATE EXTENSION citext");
    by_superuser(&cluster, 0, "CREATE RULE nothing AS ON INSERT TO seen DO INSTEAD NOTHING");
    let (_, message) = error(&mut dba, COPY);
    assert!(message.contains("table seen is of a kind that cannot be created"), "{message}");
    by_superuser(
        &cluster,
        0,
        "DROP RULE nothing ON seen; UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'job_t'::regclass",
    );
    let (state, message) = error(&mut dba, COPY);
    assert_eq!(state, "55000");
    assert!(message.ends_with("index job_t is invalid on the first shard"), "{message}");
    by_superuser(
        &cluster,
        0,
        "UPDATE pg_index SET indisvalid = true WHERE indexrelid = 'job_t'::regclass; ALTER TABLE seen RENAME TO gone",
    );
    let missing = ("42P01".to_owned(), "shard \"shard_a\" lacks seen".to_owned());
    assert_eq!(error(&mut dba, COPY), missing);
    assert_eq!(tables_there(&cluster), 0);
    by_superuser(&cluster, 0, "ALTER TABLE gone RENAME TO seen");
    made(&mut dba, COPY);
    assert_eq!(differences(&mut dba), Vec::<String>::new());
    for (there, problem, back) in [
        (
            "GRANT EXECUTE ON FUNCTION next_of TO PUBLIC",
            "revoke FUNCTION next_of(integer) EXECUTE FROM PUBLIC is missing there",
            "REVOKE EXECUTE ON FUNCTION next_of FROM PUBLIC",
        ),
        (
            "ALTER TABLE ev REPLICA IDENTITY DEFAULT",
            "replica identity ev is missing, of a table that exists",
            "ALTER TABLE ev REPLICA IDENTITY FULL",
        ),
        // A partition with rows would have to be read under a lock.
        ("ALTER TABLE ev DETACH PARTITION ev_d", "partition ev_d is missing, of a table that exists", ""),
    ] {
        by_superuser(&cluster, 1, there);
        let copy = COPY.replace("'shard_b'", "'shard_b', also => '{ev_d}'");
        let failed = dba.query(&copy, &[]).unwrap_err();
        let problems = failed.as_db_error().and_then(|error| error.detail()).unwrap_or_default().to_owned();
        assert!(problems.split("; ").any(|found| found == problem), "{problems}");
        by_superuser(&cluster, 1, back);
    }
}

#[test]
#[ignore = "make test-all: what takes long; make test has a_newcomer_gets_all_that_its_tables_need"]
fn what_takes_long_comes_after_the_rows_and_locks_nobody_out() {
    let cluster = stage();
    let mut dba = dba(&cluster);
    by_superuser(
        &cluster,
        0,
        "INSERT INTO kind VALUES ('moves', 1); INSERT INTO \"Job\" (tenant, k) SELECT 'moves', 1 FROM generate_series(1, 50)",
    );
    made(&mut dba, "SELECT kind, object FROM shard_schema_copy('shard_a', 'shard_b', secondary => false)");
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    // The foreign keys are added later.
    split.accept_remarks().unwrap();
    to_pending(&split);
    // There is a reader with an old snapshot, and a writer that arrives while the index waits for the reader.
    let writer = || cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    let (mut open, mut other) = (writer(), writer());
    open.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM \"Job\"").unwrap();
    let after = std::thread::scope(|scope| {
        let copy = scope.spawn(|| made(&mut dba, COPY));
        let mut watcher = cluster.servers[1].superuser(DATABASE).unwrap();
        let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%' AND wait_event_type = 'Lock'";
        wait::until_true(&mut watcher, "the index waits", std::time::Duration::from_secs(30), waits).unwrap();
        other
            .batch_execute("SET statement_timeout = '5s'; INSERT INTO \"Job\" (tenant, n) VALUES ('here', 6)")
            .unwrap();
        open.batch_execute("COMMIT").unwrap();
        copy.join().unwrap()
    });
    assert_eq!(
        after,
        [
            "foreign key \"Job\": \"Job_tenant_k_fkey\"",
            "index job_t",
            "index \"Odd\"",
            "index only_there",
            "cluster \"Job\"",
            "foreign key \"Job\": \"Job_tenant_k_fkey\"",
            "comment INDEX job_t",
        ]
    );
    assert_eq!(differences(&mut dba), Vec::<String>::new());
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    split.finish(LIMIT).unwrap();
    // An interrupted call leaves them like this.
    by_superuser(&cluster, 1, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'job_t'::regclass;
        ALTER TABLE \"Job\" DROP CONSTRAINT \"Job_tenant_k_fkey\";
        ALTER TABLE \"Job\" ADD CONSTRAINT \"Job_tenant_k_fkey\" FOREIGN KEY (tenant, k) REFERENCES kind ON DELETE CASCADE NOT VALID");
    assert_eq!(differences(&mut dba).len(), 2);
    assert_eq!(made(&mut dba, COPY).len(), 2);
    assert_eq!(differences(&mut dba), Vec::<String>::new());
}

#[test]
#[ignore = "make test-all: a lock that is not free; make test has a_newcomer_gets_all_that_its_tables_need"]
fn nobody_waits_behind_a_lock_that_is_not_free() {
    let cluster = stage();
    let mut dba = dba(&cluster);
    by_superuser(
        &cluster,
        1,
        &format!("SET ROLE {OWNER}; CREATE TABLE kind (tenant text, id int, PRIMARY KEY (tenant, id))"),
    );
    by_superuser(&cluster, 1, "GRANT SELECT, INSERT, UPDATE, DELETE ON kind TO app");
    let mut holder = cluster.servers[1].superuser(DATABASE).unwrap();
    holder.batch_execute("BEGIN; LOCK TABLE kind IN ROW EXCLUSIVE MODE").unwrap();
    let before = tables_there(&cluster);
    let (state, message) = error(&mut dba, COPY);
    assert_eq!(state, "55P03", "{message}");
    assert!(message.contains("foreign key \"Job\""), "{message}");
    assert_eq!(tables_there(&cluster), before);
    let dry = COPY.replace("'shard_b'", "'shard_b', dry_run => true");
    let last = made(&mut dba, &dry).pop();
    assert_eq!(last.as_deref(), Some("foreign key \"Job\": \"Job_tenant_k_fkey\""), "it locks last");
    holder.batch_execute("COMMIT").unwrap();
    made(&mut dba, COPY);
    assert_eq!(differences(&mut dba), Vec::<String>::new());
}

#[test]
#[ignore = "make test-all: other names; make test has a_newcomer_gets_all_that_its_tables_need"]
fn schemas_of_other_names_have_tables_of_their_own() {
    let cluster = Cluster::namespaces(2, &["fsync = off"]).unwrap();
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(&format!(
            "CREATE ROLE deployer LOGIN; GRANT {OWNER} TO deployer; GRANT USAGE, CREATE ON SCHEMA shard_a, shard_b TO deployer;
             CREATE ROLE reader; CREATE ROLE dba LOGIN; SELECT shard_grant('dba', 'operator'); SELECT shard_login_set('dba', 'deployer');
             SET ROLE {OWNER}; SET search_path = shard_a; {ZOO}; RESET ROLE; SET search_path = public"
        ))
        .unwrap();
    for table in TABLES {
        master.execute("SELECT shard_table_add($1, 'tenant', key_type => 'text')", &[&table]).unwrap();
    }
    let mut dba = dba(&cluster);
    made(&mut dba, COPY);
    let other = |line: &String| !line.contains("SCHEMA (namespace)");
    assert_eq!(differences(&mut dba).into_iter().filter(other).collect::<Vec<_>>(), Vec::<String>::new());
    // The call would wait for its own caller.
    master.batch_execute("DROP INDEX shard_b.job_t").unwrap();
    let (state, message) = error(&mut dba, COPY);
    assert_eq!(
        (state.as_str(), message.contains("index job_t is in this database")),
        ("55000", true),
        "{message}"
    );
    let across: i64 = master
        .query_one(
            "SELECT count(*) FROM pg_depend d
               JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) o ON true
               JOIN LATERAL pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid) r ON true
              WHERE d.objid > 16384 AND d.refobjid > 16384 AND (o.schema LIKE 'shard\\__' OR o.identity LIKE '%shard\\__.%')
                AND substring(o.identity FROM 'shard_[ab]') <> substring(r.identity FROM 'shard_[ab]')",
            &[],
        )
        .unwrap()
        .get(0);
    assert_eq!(across, 0, "something made reaches into the other schema");
    master.batch_execute("DROP SCHEMA shard_a CASCADE").unwrap();
    master.batch_execute("INSERT INTO shard_b.kind VALUES ('t', 1); INSERT INTO shard_b.\"Job\" (tenant, k) VALUES ('t', 1)").unwrap();
    // A function's body is a text, so the names in it would still refer to the other schema.
    master
        .batch_execute(&format!(
            "DROP SCHEMA shard_b CASCADE; CREATE SCHEMA shard_a; CREATE SCHEMA shard_b; GRANT ALL ON SCHEMA shard_a, shard_b TO deployer, {OWNER};
             SET ROLE {OWNER}; SET search_path = shard_a; {ZOO};
             CREATE OR REPLACE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM FROM shard_a.kind; RETURN new; END$$"
        ))
        .unwrap();
    let (state, message) = error(&mut dba, COPY);
    assert_eq!(state, "55000");
    assert!(
        message.ends_with("function touch() names schema \"shard_a\", which is a different one there"),
        "{message}"
    );
    // The name is written as people do, and also as the end of another name.
    for (body, is_it) in [("PERFORM FROM Shard_A . kind", true), ("PERFORM FROM un_shard_a.kind", false)] {
        let function = format!(
            "CREATE OR REPLACE FUNCTION shard_a.touch() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body}; RETURN new; END$$"
        );
        master.batch_execute(&function).unwrap();
        let dry = "SELECT shard_schema_copy('shard_a', 'shard_b', dry_run => true)";
        assert_eq!(dba.query(dry, &[]).is_err(), is_it, "{body}");
    }
}

#[test]
fn rights_are_those_of_the_login() {
    let cluster = stage();
    let mut lookout = cluster.master.connect(DATABASE, "lookout").unwrap();
    assert!(!differences(&mut lookout).is_empty());
    assert_eq!(error(&mut lookout, COPY).0, "42501");
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_grant('lookout', 'operator')").unwrap();
    let (state, message) = error(&mut lookout, COPY);
    assert_eq!(state, "42501", "{message}");
    assert!(message.contains("permission denied"), "{message}");
    assert_eq!(tables_there(&cluster), 0);
    assert_eq!(error(&mut master, COPY).0, "42501", "a superuser of the master is nobody on the shards");
}

/// Returns what PostgreSQL itself reports on both sides, by a query that returns one text.
fn both(cluster: &Cluster, query: &str) -> [String; 2] {
    [0, 1].map(|server| {
        cluster.servers[server].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0)
    })
}

#[test]
#[ignore = "make test-all: partitions; make test has a_newcomer_gets_all_that_its_tables_need"]
fn partitions_keep_what_is_their_own() {
    let cluster = stage();
    let mut dba = dba(&cluster);
    by_superuser(
        &cluster,
        0,
        &format!(
            "SET ROLE {OWNER}; CREATE TRIGGER tr AFTER INSERT ON ev FOR EACH ROW EXECUTE FUNCTION touch();
             ALTER TABLE ev_d DISABLE TRIGGER tr; ALTER TABLE ev_1 ENABLE ALWAYS TRIGGER tr; ALTER TABLE ev ADD CONSTRAINT low CHECK (v < 1000);
             ALTER INDEX ev_d_at_idx RENAME TO \"of d\"; ALTER INDEX \"of d\" SET (fillfactor = 44); COMMENT ON INDEX \"of d\" IS 'its own';
             CREATE TABLE ev_3 (v int DEFAULT 3 NOT NULL, junk int, tenant text NOT NULL, id int NOT NULL, at date NOT NULL,
                 CONSTRAINT \"a key\" PRIMARY KEY (tenant, id, at), CONSTRAINT low CHECK (v < 1000));
             ALTER TABLE ev_3 DROP junk, CLUSTER ON \"a key\"; ALTER TABLE ev ATTACH PARTITION ev_3 FOR VALUES FROM ('2023-01-01') TO ('2024-01-01')"
        ),
    );
    let own = "SELECT concat_ws(' ', (SELECT string_agg(concat_ws(' ', c.relname, c.reloptions, i.indrelid::regclass, h.inhparent::regclass, i.indisclustered), ', ' ORDER BY c.relname)
                                        FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_inherits h ON h.inhrelid = c.oid WHERE c.relnamespace = 'public'::regnamespace),
                         (SELECT string_agg(concat_ws(' ', tgrelid::regclass, tgname, tgenabled), ', ' ORDER BY tgrelid::regclass::text, tgname) FROM pg_trigger WHERE NOT tgisinternal),
                         (SELECT string_agg(concat_ws(' ', conrelid::regclass, conname, coninhcount), ', ' ORDER BY conrelid::regclass::text, conname) FROM pg_constraint WHERE contype IN ('c', 'p')))";
    made(&mut dba, COPY);
    let [there, here] = both(&cluster, own);
    assert_eq!(here, there);
    assert_eq!(differences(&mut dba), Vec::<String>::new());
    // These objects are added later to a table that already has a CHECK, a key and a trigger.
    by_superuser(&cluster, 1, "ALTER TABLE ev DETACH PARTITION ev_d; DROP TABLE ev_d");
    by_superuser(
        &cluster,
        0,
        &format!(
            "ALTER TABLE ev DETACH PARTITION ev_d; DROP TABLE ev_d; SET ROLE {OWNER}; CREATE TABLE ev_4 PARTITION OF ev FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')"
        ),
    );
    made(&mut dba, COPY);
    let [there, here] = both(&cluster, own);
    assert_eq!(here, there);
    by_superuser(
        &cluster,
        0,
        &format!("SET ROLE {OWNER}; CREATE TRIGGER other AFTER INSERT ON ev FOR EACH ROW EXECUTE FUNCTION touch(); ALTER TABLE ev_4 DISABLE TRIGGER other;
            CREATE TABLE ev_5 PARTITION OF ev FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')"),
    );
    made(&mut dba, COPY);
    let [there, here] = both(&cluster, own);
    assert_eq!(here, there);
    // A state that somebody has set is not changed.
    by_superuser(&cluster, 1, "ALTER TABLE ev_4 DISABLE TRIGGER tr");
    assert_eq!(differences(&mut dba), ["trigger of partition ev_4: tr: ENABLE | DISABLE"]);
    assert!(error(&mut dba, COPY).1.ends_with("trigger of partition ev_4: tr is different there"));
}

#[test]
#[ignore = "make test-all: what the other server has; make test has nothing_is_made_where_something_is_otherwise_there"]
fn what_the_other_server_adds_is_not_taken() {
    let cluster = stage();
    let mut dba = dba(&cluster);
    by_superuser(&cluster, 0, "ALTER TABLE seen ADD label text DEFAULT format('%s'::text, 'x'::text)");
    for (there, what, back) in [
        (
            "ALTER DEFAULT PRIVILEGES FOR ROLE deployer IN SCHEMA public GRANT SELECT ON TABLES TO PUBLIC",
            "grant TABLE kind",
            "ALTER DEFAULT PRIVILEGES FOR ROLE deployer IN SCHEMA public REVOKE SELECT ON TABLES FROM PUBLIC",
        ),
        // This function matches better than the server's own one, which accepts any type.
        (
            "CREATE FUNCTION format(text, text) RETURNS text LANGUAGE sql AS 'SELECT $1'",
            "function format(text,text)",
            "DROP FUNCTION format(text, text)",
        ),
    ] {
        by_superuser(&cluster, 1, there);
        let before = tables_there(&cluster);
        let message =
            format!("{what} was created on shard \"shard_b\" with a difference from shard \"shard_a\"");
        assert_eq!(error(&mut dba, COPY), ("55000".to_owned(), message));
        assert_eq!(tables_there(&cluster), before);
        by_superuser(&cluster, 1, back);
    }
    made(&mut dba, COPY);
    assert_eq!(differences(&mut dba), Vec::<String>::new());
}

#[test]
#[ignore = "make test-all: each thing that is not made; make test has rights_come_from_who_gave_them_and_what_is_not_made_is_named"]
fn what_is_not_made_is_named() {
    let cluster = stage();
    let mut dba = dba(&cluster);
    for (there, problem, back) in [
        ("CREATE TABLE heir () INHERITS (seen)", "INHERITED", "DROP TABLE heir"),
        (
            "CREATE OPERATOR === (FUNCTION = int4eq, LEFTARG = int, RIGHTARG = int); ALTER TABLE seen ADD CHECK (id === 1)",
            "operator ===(integer,integer) is of a kind that cannot be created",
            "DROP OPERATOR === (int, int) CASCADE",
        ),
        (
            "CREATE COLLATION other (provider = libc, locale = 'C'); ALTER TABLE seen ADD c text COLLATE other",
            "collation other is of a kind that cannot be created",
            "DROP COLLATION other CASCADE",
        ),
        (
            "CREATE TABLE aside (n serial); ALTER TABLE seen ADD n int DEFAULT nextval('aside_n_seq')",
            "sequence aside_n_seq is of a kind that cannot be created",
            "ALTER TABLE seen DROP n; DROP TABLE aside",
        ),
    ] {
        by_superuser(&cluster, 0, there);
        let (state, message) = error(&mut dba, COPY);
        assert_eq!(state, "55000", "{message}");
        assert!(message.contains(problem), "{message}");
        assert_eq!(tables_there(&cluster), 0);
        by_superuser(&cluster, 0, back);
    }
    by_superuser(
        &cluster,
        0,
        "CREATE EXTENSION postgres_fdw; CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw;
         CREATE TABLE log (a int) PARTITION BY LIST (a); CREATE FOREIGN TABLE log_far PARTITION OF log FOR VALUES IN (1) SERVER far",
    );
    let (_, message) = error(&mut dba, "SELECT shard_schema_copy('shard_a', 'shard_b', also => '{log}')");
    assert!(message.contains("table log_far is of a kind that cannot be created: FOREIGN"), "{message}");
}

#[test]
#[ignore = "make test-all: what is seldom used; make test has a_newcomer_gets_all_that_its_tables_need"]
fn what_is_seldom_said_is_kept() {
    let cluster = stage();
    let mut dba = dba(&cluster);
    by_superusers(&cluster, "GRANT CREATE ON DATABASE app TO deployer, app_owner");
    by_superuser(
        &cluster,
        0,
        &format!(
            "SET ROLE {OWNER}; CREATE SCHEMA beside; GRANT USAGE ON SCHEMA beside TO app; CREATE TABLE beside.\"pg_type\" (a int PRIMARY KEY);
             CREATE SEQUENCE later; CREATE FUNCTION counted() RETURNS bigint LANGUAGE sql RETURN nextval('later');
             CREATE DOMAIN small AS int CONSTRAINT top CHECK (VALUE < 100); ALTER DOMAIN small ADD CONSTRAINT low CHECK (VALUE > 0) NOT VALID;
             COMMENT ON CONSTRAINT top ON DOMAIN small IS 'a top'; CREATE TYPE duo AS (x int); COMMENT ON COLUMN duo.x IS 'a part';
             CREATE TYPE stretch AS RANGE (subtype = int, multirange_type_name = stretches);
             CREATE TABLE public.pg_class (\"a DEFERRABLE\" int, b text DEFAULT counted()::text, c small, d stretch, e duo,
                 CONSTRAINT u UNIQUE (\"a DEFERRABLE\") WITH (fillfactor = 55) DEFERRABLE INITIALLY DEFERRED,
                 CONSTRAINT x EXCLUDE USING btree (b WITH =) WITH (fillfactor = 55) WHERE (b <> ' DEFERRABLE') DEFERRABLE)
                 WITH (toast.autovacuum_enabled = false);
             COMMENT ON TABLE public.pg_class IS 'some data.'; CREATE INDEX i ON public.pg_class ((b || 'x')); ALTER INDEX i ALTER COLUMN 1 SET STATISTICS 77;
             CREATE STATISTICS s ON b, c FROM public.pg_class; ALTER STATISTICS s SET STATISTICS 88; COMMENT ON STATISTICS s IS 'both';
             REVOKE UPDATE ON public.pg_class FROM {OWNER}"
        ),
    );
    let copy = "SELECT kind, object FROM shard_schema_copy('shard_a', 'shard_b', also => '{\"\\\"pg_class\\\"\", \"beside.\\\"pg_type\\\"\"}')";
    dba.batch_execute("SET quote_all_identifiers = on").unwrap();
    by_superuser(&cluster, 0, "COMMENT ON CONSTRAINT \"Job_tenant_k_fkey\" ON \"Job\" IS 'a reference'");
    made(&mut dba, &copy.replace("also", "secondary => false, also"));
    made(&mut dba, copy);
    let query = "SELECT concat_ws(' ', (SELECT array_agg(pg_get_constraintdef(oid) ORDER BY conname) FROM pg_constraint WHERE conrelid = 'public.pg_class'::regclass OR contypid = 'small'::regtype),
            (SELECT array_agg(concat_ws(' ', relname, reloptions, relacl, relowner::regrole) ORDER BY relname) FROM pg_class WHERE relnamespace IN ('public'::regnamespace, 'beside'::regnamespace)),
            (SELECT array_agg(reloptions) FROM pg_class WHERE oid = (SELECT reltoastrelid FROM pg_class WHERE oid = 'public.pg_class'::regclass)),
            (SELECT attstattarget FROM pg_attribute WHERE attrelid = 'i'::regclass AND attnum = 1),
            (SELECT concat_ws(' ', stxstattarget, stxowner::regrole) FROM pg_statistic_ext WHERE stxname = 's'), 'stretches'::regtype,
            (SELECT concat_ws(' ', nspowner::regrole, nspacl) FROM pg_namespace WHERE nspname = 'beside'),
            (SELECT array_agg(description ORDER BY description) FROM pg_description WHERE objoid >= 16384))";
    let [there, here] = both(&cluster, query);
    assert_eq!(here, there);
    assert_eq!(made(&mut dba, copy), Vec::<String>::new());
    assert_eq!(
        error(&mut dba, "SELECT shard_schema_copy('shard_a', 'shard_b', also => '{\"\\\"$PATH\\\"\"}')").0,
        "42P01"
    );
}

/// Rights that a role with the grant option has granted are copied with their grantor. Objects besides the
/// tables that are not created are named as long as they are missing.
#[test]
fn rights_come_from_who_gave_them_and_what_is_not_made_is_named() {
    let cluster = stage();
    by_superusers(
        &cluster,
        "CREATE ROLE first; CREATE ROLE second; CREATE ROLE third; GRANT first, second TO deployer",
    );
    by_superuser(
        &cluster,
        0,
        &format!(
            "SET ROLE {OWNER}; GRANT SELECT, UPDATE (id) ON kind TO first WITH GRANT OPTION;
             SET ROLE first; GRANT SELECT, UPDATE (id) ON kind TO second WITH GRANT OPTION;
             SET ROLE second; GRANT SELECT ON kind TO third; GRANT SELECT ON kind TO PUBLIC; GRANT UPDATE (id) ON kind TO third;
             SET ROLE {OWNER}; CREATE VIEW kinds AS SELECT * FROM kind; CREATE MATERIALIZED VIEW seen_kinds AS SELECT * FROM kind;
             CREATE SEQUENCE loose; CREATE FUNCTION beside(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
             CREATE PROCEDURE done() LANGUAGE sql AS '';
             RESET ROLE; CREATE SCHEMA views AUTHORIZATION {OWNER}; CREATE VIEW views.of_kind AS SELECT id FROM kind"
        ),
    );
    let mut dba = dba(&cluster);
    let unmade = "SELECT string_agg(kind || ' ' || object, ', ' ORDER BY kind, object)
                    FROM shard_schema_copy('shard_a', 'shard_b') WHERE statement IS NULL";
    let named: String = dba.query_one(unmade, &[]).unwrap().get(0);
    let wanted = "function beside(integer), materialized view seen_kinds, procedure done(), sequence loose, view kinds, view views.of_kind";
    assert_eq!(named, wanted);
    assert_eq!(differences(&mut dba), Vec::<String>::new());
    by_superuser(&cluster, 1, "CREATE SEQUENCE loose; CREATE VIEW kinds AS SELECT * FROM kind");
    let named: String = dba.query_one(unmade, &[]).unwrap().get(0);
    assert_eq!(named, wanted.replace("sequence loose, view kinds, ", ""));
    // On that shard as well, revoking a grant revokes the grants that depend on it.
    let may = "SELECT has_table_privilege('third', 'kind', 'SELECT') OR has_column_privilege('third', 'kind', 'id', 'UPDATE')";
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    assert!(target.query_one(may, &[]).unwrap().get::<_, bool>(0));
    by_superuser(
        &cluster,
        1,
        &format!("SET ROLE {OWNER}; REVOKE SELECT, UPDATE (id) ON kind FROM first CASCADE"),
    );
    assert!(!target.query_one(may, &[]).unwrap().get::<_, bool>(0));
    // If the owner has granted it instead, that is a difference.
    by_superuser(
        &cluster,
        1,
        &format!(
            "SET ROLE {OWNER}; GRANT SELECT ON kind TO first, second WITH GRANT OPTION; GRANT SELECT ON kind TO third"
        ),
    );
    let found = differences(&mut dba).join("\n");
    assert!(found.contains("SELECT TO second WITH GRANT OPTION GRANTED BY first"), "{found}");
}
