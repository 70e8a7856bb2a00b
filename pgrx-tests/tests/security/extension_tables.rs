//! Rows of the extension's tables run no code of others, whatever rights these have on the tables. The rows
//! are changed with the rights of the extension's owner.

use postgres::{Client, Error};
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{cluster, state_of};

const CREDENTIAL: &str = "INSERT INTO shardmaster.keychain (alias, auth_kind, sealed, set_by) VALUES ('x', 'password', '', 'nobody') ON CONFLICT DO NOTHING";
const DROP: &str = "SELECT shard_credential_drop('x')";
const CAPACITY: &str = "SELECT shard_set_capacity('shard_a', 7)";

/// The trap changes the role that runs its code, and records it.
const TRAP: &str = "
    CREATE TABLE library.caught (who text);
    CREATE FUNCTION library.trap() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO library.caught VALUES (current_user);
        IF current_user <> 'librarian' THEN ALTER ROLE librarian SUPERUSER; END IF;
        RETURN NULL;
    END $$";

fn refused(outcome: Result<(), Error>, names: &str) {
    let error = outcome.expect_err(names);
    assert_eq!(state_of(&error), "55000", "{error}");
    let told = error.as_db_error().unwrap().message();
    assert!(told.contains(names), "{told}, not {names}");
}

fn caught(master: &mut Client) -> Vec<String> {
    let query = "SELECT who FROM library.caught UNION ALL SELECT 'superuser' FROM pg_roles WHERE rolname = 'librarian' AND rolsuper";
    master.query(query, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

fn listed(master: &mut Client) -> Vec<String> {
    master
        .query("SELECT * FROM shardmaster.code_of_others() c ORDER BY c", &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

#[test]
fn no_row_of_ours_fires_code_of_others() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(&format!(
            "CREATE ROLE librarian LOGIN; CREATE SCHEMA library AUTHORIZATION librarian;
             CREATE ROLE an_admin LOGIN; SELECT shard_grant('an_admin', 'admin');
             GRANT USAGE ON SCHEMA shardmaster TO librarian; {CREDENTIAL}"
        ))
        .unwrap();
    let mut librarian = cluster.master.connect(DATABASE, "librarian").unwrap();
    let mut admin = cluster.master.connect(DATABASE, "an_admin").unwrap();
    librarian.batch_execute(TRAP).unwrap();

    // An earlier recommendation: a foreign key, whose table has a trigger.
    master.batch_execute("GRANT REFERENCES (alias) ON shardmaster.keychain TO librarian").unwrap();
    for follows in
        ["ON DELETE CASCADE ON UPDATE CASCADE", "ON DELETE SET NULL", "", "DEFERRABLE INITIALLY DEFERRED"]
    {
        librarian
            .batch_execute(&format!(
                "CREATE TABLE library.bucket (name text, credential text REFERENCES shardmaster.keychain (alias) {follows});
                 CREATE TRIGGER t AFTER DELETE OR UPDATE ON library.bucket FOR EACH ROW EXECUTE FUNCTION library.trap();
                 INSERT INTO library.bucket VALUES ('photos', 'x')"
            ))
            .unwrap();
        refused(admin.batch_execute(DROP), "a foreign key of table \"library\".\"bucket\"");
        refused(admin.batch_execute("SELECT shard_keychain_rotate()").and(admin.batch_execute(DROP)), "");
        refused(master.batch_execute("TRUNCATE shardmaster.keychain CASCADE"), "library");
        assert_eq!(listed(&mut master), ["foreign key bucket_credential_fkey of table library.bucket"]);
        librarian.batch_execute("DROP TABLE library.bucket; TRUNCATE library.caught").unwrap();
    }
    assert_eq!(caught(&mut master), Vec::<String>::new());

    // Triggers of each kind, with names that sort before all others.
    master.batch_execute("GRANT TRIGGER ON shardmaster.shard TO librarian").unwrap();
    for kind in ["BEFORE UPDATE", "AFTER UPDATE", "BEFORE INSERT OR UPDATE OR DELETE"] {
        for each in ["FOR EACH ROW", "FOR EACH STATEMENT"] {
            for name in ["\" \"", "U&\"\\0001a\"", "\"!\"", "\"\u{7f}\""] {
                let create = format!(
                    "CREATE TRIGGER {name} {kind} ON shardmaster.shard {each} EXECUTE FUNCTION library.trap()"
                );
                librarian.batch_execute(&create).unwrap();
                refused(admin.batch_execute(CAPACITY), "trigger");
                assert_eq!(listed(&mut master).len(), 1);
                master.batch_execute(&format!("DROP TRIGGER {name} ON shardmaster.shard")).unwrap();
            }
        }
    }
    let taken =
        "CREATE TRIGGER U&\"\\0001\" BEFORE UPDATE ON shardmaster.shard EXECUTE FUNCTION library.trap()";
    assert_eq!(state_of(&librarian.batch_execute(taken).unwrap_err()), "42710");
    assert_eq!(caught(&mut master), Vec::<String>::new());

    // Objects that only the owner of a table can create, here a superuser.
    for (create, names, drop) in [
        (
            "CREATE RULE r AS ON UPDATE TO shardmaster.shard DO ALSO INSERT INTO library.caught VALUES ('rule')",
            "rule",
            "DROP RULE r ON shardmaster.shard",
        ),
        ("CREATE TABLE library.heir () INHERITS (shardmaster.shard)", "inherits", "DROP TABLE library.heir"),
        (
            "ALTER TABLE shardmaster.shard ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON shardmaster.shard",
            "security",
            "DROP POLICY p ON shardmaster.shard; ALTER TABLE shardmaster.shard DISABLE ROW LEVEL SECURITY",
        ),
    ] {
        master.batch_execute(create).unwrap();
        refused(admin.batch_execute(CAPACITY), names);
        assert_eq!(listed(&mut master).len(), 1, "{create}");
        master.batch_execute(drop).unwrap();
        admin.batch_execute(CAPACITY).unwrap();
    }
    admin.batch_execute(DROP).unwrap();

    // Each table has its trigger. Foreign keys between our tables belong to nobody else.
    let without = "SELECT count(*) FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
                    WHERE d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'shardmaster') AND d.classid = 'pg_class'::regclass AND c.relkind = 'r'
                      AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = chr(1) AND t.tgtype & 62 = 62 AND t.tgenabled = 'A')";
    assert_eq!(master.query_one(without, &[]).unwrap().get::<_, i64>(0), 0);
    assert_eq!(listed(&mut master), Vec::<String>::new());
}

/// Rows of the catalog determine with which role shards are reached, and what runs there. A role that may
/// write all tables could become anybody. A column of a catalog's row type does not block an update of the
/// extension either.
#[test]
fn whoever_may_write_all_data_writes_nothing_of_the_catalog() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "CREATE ROLE writer LOGIN; GRANT USAGE ON SCHEMA shardmaster TO writer;
             GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA shardmaster TO writer;
             CREATE SCHEMA own AUTHORIZATION writer; SELECT shard_grant('writer', 'operator');
             DO $$ BEGIN IF current_setting('server_version_num')::int >= 140000 THEN GRANT pg_write_all_data TO writer; END IF; END $$;
             DO $$ BEGIN IF current_setting('server_version_num')::int >= 150000 THEN
                 GRANT SET ON PARAMETER session_replication_role TO writer; END IF; END $$",
        )
        .unwrap();
    let tables =
        "SELECT c.oid::regclass::text, a.attname::text FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
                    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = 1
                   WHERE d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'shardmaster')
                     AND d.classid = 'pg_class'::regclass AND c.relkind = 'r'";
    let mut writer = cluster.master.connect(DATABASE, "writer").unwrap();
    let tables = master.query(tables, &[]).unwrap();
    assert!(tables.len() > 30);
    for row in &tables {
        let (table, column): (String, String) = (row.get(0), row.get(1));
        for statement in [
            format!("INSERT INTO {table} DEFAULT VALUES"),
            format!("UPDATE {table} SET \"{column}\" = DEFAULT"),
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table} CASCADE"),
            format!("SET session_replication_role = replica; DELETE FROM {table}"),
        ] {
            let error = writer.batch_execute(&statement).expect_err(&statement);
            assert!(["42501", "428C9"].contains(&state_of(&error)), "{statement}: {error}");
            let _ = writer.batch_execute("RESET session_replication_role");
        }
    }
    // The extension's functions write what the role's level allows.
    writer.batch_execute("SELECT shard_assign('somebody', 'shard_a'), shard_unassign('somebody')").unwrap();
    for of_a_type in [
        "CREATE TABLE own.t (x shardmaster.split_metrics_row)",
        "CREATE TABLE own.t OF shardmaster.split_metrics_row",
        "CREATE TABLE own.t AS SELECT m FROM shard_split_metrics() m",
        "CREATE TABLE own.t AS SELECT s FROM shardmaster.shard s",
        "CREATE FUNCTION own.f() RETURNS SETOF shardmaster.split_metrics_row LANGUAGE sql AS 'SELECT * FROM public.shard_split_metrics()'",
    ] {
        assert_eq!(state_of(&writer.batch_execute(of_a_type).expect_err(of_a_type)), "42501", "{of_a_type}");
    }
    writer
        .batch_execute("CREATE VIEW own.v AS SELECT * FROM shard_split_metrics(); CREATE TABLE own.t AS SELECT * FROM shard_split_metrics()")
        .unwrap();
}

/// Returns a role's rights on the extension's objects, except for calls that everybody may make.
fn given(there: &mut Client) -> Vec<String> {
    let query = "
        SELECT format('%s %s', a.privilege_type, c.oid::regclass) FROM pg_class c, aclexplode(c.relacl) a
         WHERE c.relnamespace = 'shardmaster'::regnamespace AND a.grantee = 'everything'::regrole
        UNION ALL
        SELECT format('%s %s', a.privilege_type, p.oid::regprocedure) FROM pg_proc p, aclexplode(p.proacl) a, pg_depend d
         WHERE d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND a.grantee = 'everything'::regrole AND p.proname <> 'shard_for'
        UNION ALL
        SELECT format('%s (%s) %s', a.privilege_type, t.attname, t.attrelid::regclass) FROM pg_attribute t, aclexplode(t.attacl) a
         WHERE a.grantee = 'everything'::regrole
        UNION ALL
        SELECT a.privilege_type || ' schema' FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = 'shardmaster' AND a.grantee = 'everything'::regrole
        ORDER BY 1";
    there.query(query, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

const BY_DEFAULT: &str = "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO everything; ALTER DEFAULT PRIVILEGES GRANT ALL ON ROUTINES TO everything;
    ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO everything; ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO everything";

fn database(cluster: &Cluster, name: &str) -> Client {
    let mut master = cluster.superuser().unwrap();
    master.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")).unwrap();
    cluster.master.superuser(name).unwrap()
}

#[test]
fn default_privileges_and_old_grants_give_nothing_of_it() {
    let cluster = cluster(&[]);
    cluster.superuser().unwrap().batch_execute("CREATE ROLE everything; CREATE ROLE granted").unwrap();
    let mut fresh = database(&cluster, "fresh");
    fresh.batch_execute(&format!("{BY_DEFAULT}; CREATE EXTENSION shardmaster")).unwrap();
    assert_eq!(given(&mut fresh), Vec::<String>::new());

    let mut old = database(&cluster, "old");
    let has = "SELECT count(*) FROM pg_available_extension_versions WHERE name = 'shardmaster' AND version = '0.1.0'";
    assert_eq!(old.query_one(has, &[]).unwrap().get::<_, i64>(0), 1, "the release is there");
    old.batch_execute(&format!(
        "CREATE EXTENSION shardmaster VERSION '0.1.0'; {BY_DEFAULT};
         GRANT USAGE ON SCHEMA shardmaster TO granted; GRANT REFERENCES (alias) ON shardmaster.keychain TO granted;
         GRANT SELECT, TRIGGER, REFERENCES ON shardmaster.shard TO granted WITH GRANT OPTION; GRANT TRIGGER ON shardmaster.split_plan TO PUBLIC;
         SELECT shard_grant('granted', 'operator');
         CREATE TABLE bucket (credential text REFERENCES shardmaster.keychain (alias))"
    ))
    .unwrap();
    let update = "ALTER EXTENSION shardmaster UPDATE";
    refused(old.batch_execute(update), "foreign key bucket_credential_fkey of table public.bucket");
    old.batch_execute(&format!("DROP TABLE bucket; {update}")).unwrap();
    assert_eq!(given(&mut old), Vec::<String>::new());
    let still = "SELECT has_column_privilege('granted', 'shardmaster.keychain', 'alias', 'REFERENCES'),
                        has_table_privilege('granted', 'shardmaster.shard', 'TRIGGER'), has_table_privilege('granted', 'shardmaster.split_plan', 'TRIGGER'),
                        has_table_privilege('granted', 'shardmaster.shard', 'SELECT'), has_schema_privilege('granted', 'shardmaster', 'USAGE'),
                        has_function_privilege('granted', 'shardmaster.split_next_call(bigint, text, boolean)', 'EXECUTE')";
    let row = old.query_one(still, &[]).unwrap();
    let still: Vec<bool> = (0..6).map(|column| row.get(column)).collect();
    assert_eq!(still, [false, false, false, true, true, true]);
}
