//! The rights of roles below superuser: everything for which their level exists, and nothing else. Rights on
//! tables by the mover were granted when somebody registered the tables, and are checked again.

use postgres::Client;
use shardmaster_tests::cluster::{Cluster, DATABASE, MOVER, OWNER};
use shardmaster_tests::fixture::{LIMIT, cluster, state_of, to_pending};
use shardmaster_tests::split::Split;
use std::time::{Duration, Instant};

/// Makes a role of the master's server with a level, and opens its session.
fn of_level(cluster: &Cluster, role: &str, level: &str) -> Client {
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(&format!("CREATE ROLE {role} LOGIN; SELECT shard_grant('{role}', '{level}')"))
        .unwrap();
    cluster.master.connect(DATABASE, role).unwrap()
}

/// Returns the message of a refusal, and checks its SQLSTATE.
fn refused(outcome: Result<(), postgres::Error>, state: &str) -> String {
    let error = outcome.expect_err(state);
    assert_eq!(state_of(&error), state, "{error}");
    let error = error.as_db_error().unwrap();
    format!("{} {}", error.message(), error.hint().unwrap_or_default())
}

/// A level includes all rights that its calls need. An operator without any other right moves a tenant
/// completely, a monitor watches, and a client routes.
#[test]
fn a_level_is_enough_for_what_it_is_for() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    for level in ["client", "monitor", "operator"] {
        master
            .batch_execute(&format!(
                "CREATE ROLE a_{level} LOGIN; SELECT shard_grant('a_{level}', '{level}')"
            ))
            .unwrap();
    }
    let session = |level: &str| cluster.master.connect(DATABASE, &format!("a_{level}")).unwrap();
    let mut operator = session("operator");
    let plan = "SELECT shard_split_plan('shard_a', 'shard_b', ARRAY['moves'])";
    let id: i64 = operator.query_one(plan, &[]).unwrap().get(0);
    let wrong = "SELECT count(*) FROM shard_split_check($1) WHERE NOT ok";
    assert_eq!(operator.query_one(wrong, &[&id]).unwrap().get::<_, i64>(0), 0);
    operator.batch_execute(&format!("CALL shard_split_run({id}, 'finished')")).unwrap();
    let mut monitor = session("monitor");
    let query =
        "SELECT phase, (SELECT count(*) FROM shard_split_events($1)), (SELECT count(*) FROM shard_guards())
                   FROM shard_split_metrics($1)";
    let row = monitor.query_one(query, &[&id]).unwrap();
    assert_eq!(row.get::<_, String>(0), "completed");
    assert!(row.get::<_, i64>(1) > 5 && row.get::<_, i64>(2) > 0);
    let route = "SELECT shard_key FROM shard_route('moves')";
    assert_eq!(session("client").query_one(route, &[]).unwrap().get::<_, String>(0), "shard_b");
    for (level, query) in [
        ("client", "SELECT shard_assign('x', 'shard_a')"),
        ("monitor", "SELECT shard_of('moves')"),
        ("operator", "SELECT shard_set_status('shard_a', 'draining')"),
        ("operator", "SELECT * FROM shardmaster.shard"),
    ] {
        let error = session(level).batch_execute(query).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{level}: {query}");
    }
}

/// A connection string determines with whose rights the master connects, so it is for superusers.
#[test]
fn an_operator_adds_no_server_by_a_connection_string() {
    let cluster = Cluster::namespaces(0, &["fsync = off"]).unwrap();
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "CREATE ROLE operator LOGIN;
             GRANT EXECUTE ON FUNCTION shard_add, shard_add_many, shard_set_endpoint TO operator;
             SELECT shard_add('there', 'host=localhost')",
        )
        .unwrap();
    let mut operator = cluster.master.connect(DATABASE, "operator").unwrap();
    let socket = cluster.master.socket_dir().display().to_string();
    // An empty one leads to libpq's defaults: the database of the server's own account on its own machine.
    for call in
        ["shard_add('evil', '')", "shard_add('evil', conninfo => '')", "shard_set_endpoint('there', '')"]
    {
        let error = operator.batch_execute(&format!("SELECT {call}")).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{call}: {error}");
    }
    for conninfo in [
        format!("host={socket} user=postgres dbname={DATABASE}"),
        "service=x".to_owned(),
        "host=localhost passfile=/etc/passwd".to_owned(),
        "host=localhost sslkey=/tmp/key".to_owned(),
        "host=localhost options=-csession_preload_libraries=x".to_owned(),
    ] {
        let calls = ["conninfo", "client_conninfo", "read_conninfo", "options"].map(|argument| {
            [
                format!("shard_add('evil', {argument} => $1)"),
                format!("shard_set_endpoint('there', {argument} => $1)"),
            ]
        });
        for call in calls.into_iter().flatten().chain(["shard_add_many($1)".to_owned()]) {
            let error = operator.execute(&format!("SELECT {call}"), &[&conninfo]).unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{call}: {error}");
        }
    }
    for part in ["host => 'h'", "port => 1", "database => 'd'", "username => 'postgres'"] {
        let error =
            operator.batch_execute(&format!("SELECT shard_set_endpoint('there', {part})")).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{part}: {error}");
    }
    operator.batch_execute("SELECT shard_set_endpoint('there', notes => 'moves in May')").unwrap();
    operator.batch_execute("SELECT shard_add('gpu', kind => 'vector')").unwrap();
    assert_eq!(master.query("SELECT 1 FROM shard_topology()", &[]).unwrap().len(), 2);
}

/// Repeated calls for the midpoint of a range reveal a whole column. A superuser has registered it, and so
/// has declared that it contains keys.
#[test]
fn the_middle_of_a_range_is_shown_of_what_a_superuser_has_named() {
    let cluster = cluster(&[]);
    let mut owner = cluster.owner_of(cluster.shard("shard_a").unwrap()).unwrap();
    owner
        .batch_execute(&format!(
            "SET ROLE {OWNER}; CREATE TABLE logins (name text PRIMARY KEY, password text NOT NULL);
             INSERT INTO logins VALUES ('a', 'a-secret'), ('b', 'hunter2'), ('c', 'x-secret')"
        ))
        .unwrap();
    let mut admin = of_level(&cluster, "an_admin", "admin");
    admin
        .batch_execute(
            "SELECT shard_keyspace_add('peek', 'range', key_type => 'text'), shard_assign_range(NULL, NULL, 'shard_a', 'peek');
             SELECT shard_table_add('logins', 'password', 'peek')",
        )
        .unwrap();
    let ask = "SELECT shard_range_midpoint('peek', NULL, NULL)";
    let text = refused(admin.batch_execute(ask), "42501");
    assert!(text.contains("logins") && text.contains("password") && !text.contains("secret"), "{text}");
    let mut operator = of_level(&cluster, "an_operator", "operator");
    refused(operator.batch_execute(ask), "42501");
    // By the order of all keys no existing key is shown.
    admin.batch_execute("SELECT shard_range_midpoint('peek', 'a', 'z', by => 'keyspace')").unwrap();
    let mut master = cluster.superuser().unwrap();
    assert_eq!(master.query_one(ask, &[]).unwrap().get::<_, String>(0), "hunter2");
    // A column that a superuser has registered is available to operators.
    master
        .batch_execute("SELECT shard_table_drop('logins', 'peek'), shard_table_add('logins', 'name', 'peek')")
        .unwrap();
    assert_eq!(operator.query_one(ask, &[]).unwrap().get::<_, String>(0), "b");
    // This holds as long as the role is a superuser.
    master
        .batch_execute(
            "CREATE ROLE boss SUPERUSER LOGIN; SET ROLE boss;
             SELECT shard_table_drop('logins', 'peek'), shard_table_add('logins', 'name', 'peek'); RESET ROLE",
        )
        .unwrap();
    operator.batch_execute(ask).unwrap();
    master.batch_execute("ALTER ROLE boss NOSUPERUSER").unwrap();
    refused(operator.batch_execute(ask), "42501");
    // Another role with his name has registered nothing.
    for another in ["ALTER ROLE boss RENAME TO clerk", "DROP ROLE boss"] {
        master.batch_execute(&format!("{another}; CREATE ROLE boss SUPERUSER")).unwrap();
        refused(operator.batch_execute(ask), "42501");
    }
    // He is the same role under any name.
    master.batch_execute("ALTER ROLE clerk SUPERUSER").unwrap();
    operator.batch_execute(ask).unwrap();
    // A registration by the other role counts as its own.
    master
        .batch_execute(
            "ALTER ROLE clerk NOSUPERUSER; SET ROLE boss;
             SELECT shard_table_drop('logins', 'peek'), shard_table_add('logins', 'name', 'peek'); RESET ROLE",
        )
        .unwrap();
    operator.batch_execute(ask).unwrap();
}

/// The address proves nothing. The database behind it does, when it is asked.
#[test]
fn nobody_below_superuser_trusts_a_role_by_an_alias_of_the_master() {
    let cluster = cluster(&["shardmaster.remote_timeout = 2s"]);
    let mut master = cluster.superuser().unwrap();
    let alias = cluster.master.conninfo(DATABASE, MOVER);
    // Nothing listens at the other address.
    let silent = format!("host={} port=1 dbname=x user=y", cluster.master.socket_dir().display());
    for (shard, conninfo) in [("alias", &alias), ("silent", &silent)] {
        master.execute("SELECT shard_add($1, $2)", &[&shard, conninfo]).unwrap();
    }
    let mut admin = of_level(&cluster, "an_admin", "admin");
    let trust = |shard: &str| format!("SELECT shard_trust_owner('{shard}', '{OWNER}')");
    let known = "SELECT count(*) FROM shardmaster.database_identity WHERE conninfo = $1";
    assert_eq!(master.query_one(known, &[&alias]).unwrap().get::<_, i64>(0), 0, "no worker has met it");
    let text = refused(admin.batch_execute(&trust("alias")), "42501");
    assert!(text.contains("shard \"alias\""), "{text}");
    let began = Instant::now();
    assert!(admin.batch_execute(&trust("silent")).is_err());
    assert!(began.elapsed() < Duration::from_secs(10));
    admin.batch_execute(&trust("shard_a")).unwrap();
    master.batch_execute(&trust("alias")).unwrap();
    let trusted = "SELECT string_agg(shard_key, ' ' ORDER BY shard_key) FROM shard_trusted_owners()";
    assert_eq!(master.query_one(trusted, &[]).unwrap().get::<_, String>(0), "alias shard_a");
}

/// A mover with all rights on the master's own server is the master.
#[test]
fn nobody_below_superuser_trusts_a_role_where_the_movers_rights_are_the_masters() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("CREATE DATABASE beside").unwrap();
    for (shard, user) in [("as_mover", MOVER), ("as_boss", "postgres")] {
        let conninfo = cluster.master.conninfo("beside", user);
        master.execute("SELECT shard_add($1, $2)", &[&shard, &conninfo]).unwrap();
    }
    let mut admin = of_level(&cluster, "an_admin", "admin");
    refused(admin.batch_execute(&format!("SELECT shard_trust_owner('as_boss', '{OWNER}')")), "42501");
    admin.batch_execute(&format!("SELECT shard_trust_owner('as_mover', '{OWNER}')")).unwrap();
}

/// Makes a server, and a master with two shards that are schemas of its own database. The mover is a member
/// of all owners of tables.
fn mixed() -> (Cluster, Client) {
    let local = format!("shardmaster.local_user = '{MOVER}'");
    let cluster = cluster(&[&local]);
    let admin = of_level(&cluster, "an_admin", "admin");
    cluster
        .superuser()
        .unwrap()
        .batch_execute(&format!(
            "CREATE ROLE somebody; GRANT somebody, an_admin TO {MOVER};
             CREATE SCHEMA one AUTHORIZATION an_admin; CREATE SCHEMA two AUTHORIZATION an_admin;
             SELECT shard_keyspace_add('papers', 'directory')"
        ))
        .unwrap();
    (cluster, admin)
}

const TABLE: &str = "CREATE TABLE {}.papers (id text PRIMARY KEY, v text)";

fn count(session: &mut Client, query: &str) -> i64 {
    session.query_one(query, &[]).unwrap().get(0)
}

/// The owner of a schema in the master's own database can read and write in it. Declaring it a shard does not
/// bring rows of others there, nor his own rows elsewhere.
#[test]
fn no_rows_of_others_come_into_a_schema_that_its_owner_has_added() {
    let (cluster, mut admin) = mixed();
    admin
        .batch_execute(
            "CREATE TABLE one.items (tenant text, id int, val text, code int,
                                     PRIMARY KEY (tenant, id), UNIQUE (tenant, code) DEFERRABLE);
             SELECT shard_add('mine', namespace => 'one'), shard_assign('own', 'mine')",
        )
        .unwrap();
    let into = "SELECT shard_split_plan('shard_a', 'mine', '{moves}')";
    let planned = admin.query_one(into, &[]);
    if let Ok(row) = &planned {
        let split = Split::of(&cluster, row.get(0));
        split.call("start_dual_write").unwrap();
        split.call("run_backfill").unwrap();
        let _ = split.wait("cutover_pending", LIMIT);
    }
    assert_eq!(count(&mut admin, "SELECT count(*) FROM one.items"), 0);
    let text = refused(planned.map(drop), "42501");
    assert!(
        text.contains("role an_admin may not move rows between shard \"mine\" and shard \"shard_a\""),
        "{text}"
    );
    refused(admin.batch_execute("SELECT shard_split_plan('mine', 'shard_a', '{own}')"), "42501");
    let mut master = cluster.superuser().unwrap();
    // This also holds after a superuser has taken the name under which he has added it.
    master.batch_execute("ALTER ROLE an_admin RENAME TO former; CREATE ROLE an_admin SUPERUSER").unwrap();
    refused(admin.batch_execute(into), "42501");
    master.batch_execute("DROP ROLE an_admin; ALTER ROLE former RENAME TO an_admin").unwrap();
    // A superuser has declared that it is a shard.
    master
        .batch_execute(
            "SELECT shard_unassign('own'), shard_drop('mine'), shard_add('mine', namespace => 'one');
             GRANT USAGE ON SCHEMA one TO PUBLIC",
        )
        .unwrap();
    let split = Split::plan_by(&cluster, into).unwrap();
    // Its owner, who may read it, is another role.
    split.accept_remarks().unwrap();
    to_pending(&split);
    assert_eq!(count(&mut admin, "SELECT count(*) FROM one.items"), 300);
}

/// The owner of a schema has no right on tables of others in it, nor on their rows by a split.
#[test]
fn no_rows_of_a_table_of_others_leave_it_by_its_schemas_owner() {
    let (cluster, mut admin) = mixed();
    let mut master = cluster.superuser().unwrap();
    let table = "(tenant text, id int, val text, code int, PRIMARY KEY (tenant, id), UNIQUE (tenant, code) DEFERRABLE)";
    master
        .batch_execute(&format!(
            "CREATE SCHEMA second AUTHORIZATION an_admin; CREATE ROLE bob; GRANT CREATE, USAGE ON SCHEMA one TO bob;
             SET ROLE bob; CREATE TABLE one.items {table}; INSERT INTO one.items VALUES ('own', 1, 'secret', 1); RESET ROLE"
        ))
        .unwrap();
    admin
        .batch_execute(&format!(
            "CREATE TABLE second.items {table};
             SELECT shard_add('mine', namespace => 'one'), shard_add('too', namespace => 'second'), shard_assign('own', 'mine')"
        ))
        .unwrap();
    let text = refused(admin.batch_execute("SELECT shard_split_plan('mine', 'too', '{own}')"), "42501");
    assert!(
        text.contains("role an_admin may not move rows of table one.items, which belongs to role bob"),
        "{text}"
    );
    assert_eq!(count(&mut master, "SELECT count(*) FROM second.items"), 0);
    master.batch_execute("GRANT bob TO an_admin").unwrap();
    admin.batch_execute("SELECT shard_split_plan('mine', 'too', '{own}')").unwrap();
}

/// A table was registered while no schema had its name, which everybody may do. Once the schema exists, that
/// is not his right.
#[test]
fn a_table_that_was_named_before_its_schema_is_looked_at_again() {
    const PLAN: &str = "SELECT shard_split_plan('here', 'shard_b', '{k}', keyspace => 'papers')";
    let (cluster, mut admin) = mixed();
    let mut master = cluster.superuser().unwrap();
    let mut there = cluster.servers[1].superuser(DATABASE).unwrap();
    there
        .batch_execute(&format!(
            "CREATE SCHEMA later; GRANT USAGE ON SCHEMA later TO {MOVER}; {};
             ALTER TABLE later.papers OWNER TO {OWNER}",
            TABLE.replace("{}", "later")
        ))
        .unwrap();
    let secrets = |there: &mut Client| count(there, "SELECT count(*) FROM later.papers");
    master.batch_execute("SELECT shard_add('here', namespace => 'one')").unwrap();
    admin
        .batch_execute(
            "SELECT shard_assign('k', 'here', 'papers'), shard_table_add('later.papers', 'id', 'papers')",
        )
        .unwrap();
    let early = Split::plan_by(&cluster, PLAN).unwrap();
    master
        .batch_execute(&format!(
            "CREATE SCHEMA later AUTHORIZATION somebody; GRANT USAGE ON SCHEMA later TO PUBLIC; {};
             INSERT INTO later.papers VALUES ('k', 'secret'); ALTER TABLE later.papers OWNER TO somebody",
            TABLE.replace("{}", "later")
        ))
        .unwrap();
    // This split was planned before.
    let problems = "SELECT string_agg(detail || hint, ' ') FROM shard_split_check($1) WHERE NOT ok";
    let found: Option<String> = admin.query_one(problems, &[&early.id]).unwrap().get(0);
    early.call("start_dual_write").unwrap();
    let error = early.wait("dual_write", LIMIT).err().map(|error| error.to_string());
    if error.is_none() {
        early.call("run_backfill").unwrap();
        let _ = early.wait("cutover_pending", LIMIT);
    }
    assert_eq!(secrets(&mut there), 0);
    let says = "role an_admin may not use tables of schema \"later\"";
    assert!(found.as_deref().is_some_and(|text| text.contains(says)), "{found:?}");
    assert!(error.as_deref().is_some_and(|text| text.contains(says)), "{error:?}");
    early.call("rollback").unwrap();
    early.wait("rolled_back", LIMIT).unwrap();
    // These are planned afterwards, whoever plans them.
    for session in [&mut admin, &mut master] {
        let text = refused(session.batch_execute(PLAN), "42501");
        assert!(text.contains(says) && text.contains("shard_table_add"), "{text}");
    }
    refused(admin.batch_execute(&format!("SELECT shard_split_start_dual_write({})", early.id)), "42501");
    // A superuser may plan it.
    master
        .batch_execute(
            "SELECT shard_table_drop('later.papers', 'papers'), shard_table_add('later.papers', 'id', 'papers')",
        )
        .unwrap();
    let split = Split::plan_by(&cluster, PLAN).unwrap();
    split.accept_remarks().unwrap();
    to_pending(&split);
    assert_eq!(secrets(&mut there), 1);
}

/// The database of the schema is reached by an address that no worker has met.
#[test]
fn a_table_of_the_master_by_another_address_is_looked_at() {
    let (cluster, mut admin) = mixed();
    let mut master = cluster.superuser().unwrap();
    let alias = cluster.master.conninfo(DATABASE, MOVER);
    admin.batch_execute("SELECT shard_table_add('later.papers', 'id', 'papers')").unwrap();
    master
        .batch_execute(&format!(
            "CREATE SCHEMA later AUTHORIZATION somebody; GRANT USAGE ON SCHEMA later TO PUBLIC; {};
             INSERT INTO later.papers VALUES ('k', 'secret'); ALTER TABLE later.papers OWNER TO somebody",
            TABLE.replace("{}", "later")
        ))
        .unwrap();
    master.execute("SELECT shard_add('alias', $1), shard_assign('k', 'alias', 'papers')", &[&alias]).unwrap();
    let plan = "SELECT shard_split_plan('alias', 'shard_b', '{k}', keyspace => 'papers')";
    let split = Split::plan_by(&cluster, plan).unwrap();
    split.call("start_dual_write").unwrap();
    let error = split.wait("dual_write", LIMIT).unwrap_err().to_string();
    assert!(error.contains("role an_admin may not use tables of schema \"later\""), "{error}");
}

/// If a schema gets another owner, the right to move its rows goes with it, even between two steps.
#[test]
fn a_schema_that_changes_hands_is_looked_at_again() {
    const PLAN: &str = "SELECT shard_split_plan('first', 'second', '{k}', keyspace => 'papers')";
    let (cluster, mut admin) = mixed();
    for schema in ["one", "two"] {
        admin.batch_execute(&TABLE.replace("{}", schema)).unwrap();
    }
    admin
        .batch_execute(
            "INSERT INTO one.papers VALUES ('k', 'own'); SELECT shard_table_add('papers', 'id', 'papers');
             SELECT shard_add('first', namespace => 'one'), shard_add('second', namespace => 'two');
             SELECT shard_assign('k', 'first', 'papers')",
        )
        .unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("GRANT USAGE ON SCHEMA one, two TO PUBLIC").unwrap();
    let split = Split::plan_by(&cluster, PLAN).unwrap();
    to_pending(&split);
    assert_eq!(count(&mut master, "SELECT count(*) FROM two.papers"), 1);
    cluster.hold("step_begin").unwrap();
    split.wait_held("step_begin", LIMIT).unwrap();
    master.batch_execute("ALTER SCHEMA one OWNER TO somebody; UPDATE one.papers SET v = 'secret'").unwrap();
    cluster.fault("").unwrap();
    let says = "role an_admin may not add schema \"one\" as a shard";
    let error = split.wait("completed", LIMIT).unwrap_err().to_string();
    assert_eq!(count(&mut master, "SELECT count(*) FROM two.papers WHERE v = 'secret'"), 0);
    assert!(error.contains(says), "{error}");
    master.batch_execute("ALTER SCHEMA one OWNER TO an_admin").unwrap();
    split.call("replay_tail").unwrap();
    split.wait_settled(LIMIT).unwrap();
    assert_eq!(count(&mut master, "SELECT count(*) FROM two.papers WHERE v = 'secret'"), 1);
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    master.batch_execute("ALTER SCHEMA one OWNER TO somebody").unwrap();
    let text = refused(admin.batch_execute(PLAN), "42501");
    assert!(text.contains(says), "{text}");
}
