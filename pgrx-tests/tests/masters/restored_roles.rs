//! A master that is restored where another role has the oid of a role that is gone.

use postgres::Client;
use shardmaster_tests::backups::Dump;
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::queries::error;
use shardmaster_tests::two_phase::{runs, stage};

const ROLES: &str = r#"
    CREATE ROLE "Re porting" LOGIN; CREATE ROLE "Sta ys" LOGIN;
    SELECT shard_grant('Re porting', 'operator'), shard_grant('Sta ys', 'client'),
           shard_login_set('Re porting', 'deployer'), shard_login_set('Sta ys', 'deployer')"#;
const BEGIN: &str = "SELECT shardmaster.execution_begin('INSERT INTO runs DEFAULT VALUES', 'default', NULL, 1, true, '1 min', true)";
/// Makes a role with that oid, as in a new cluster, where oids are assigned again.
const SOMEBODY: &str = "
    SET allow_system_table_mods = on;
    INSERT INTO pg_authid (oid, rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls, rolconnlimit)
    VALUES ($number, 'somebody', false, true, false, false, true, false, false, -1);
    RESET allow_system_table_mods;
    SELECT shard_grant('somebody', 'operator')";

fn connect(cluster: &Cluster, role: &str) -> Client {
    cluster.master.connect(DATABASE, role).unwrap()
}

fn logins(master: &mut Client) -> Vec<String> {
    let query = "SELECT role FROM shard_logins() ORDER BY role";
    master.query(query, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn nobody_gets_the_login_of_a_role_that_is_gone() {
    let cluster = stage(1);
    let mut master = cluster.superuser().unwrap();
    master.batch_execute(ROLES).unwrap();
    let execution: i64 = connect(&cluster, "Re porting").query_one(BEGIN, &[]).unwrap().get(0);
    let stays: i64 = connect(&cluster, "dba").query_one(BEGIN, &[]).unwrap().get(0);
    let number = r#"SELECT '"Re porting"'::regrole::oid::text"#;
    let number: String = master.query_one(number, &[]).unwrap().get(0);
    master.batch_execute(r#"DROP OWNED BY "Re porting"; DROP ROLE "Re porting""#).unwrap();
    assert_eq!(logins(&mut master), [number.as_str(), "Sta ys", "dba"]);
    drop(master);

    let dump = Dump::of(&cluster, "before").unwrap();
    dump.restore(&cluster).unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute(&SOMEBODY.replace("$number", &number)).unwrap();
    assert_eq!(logins(&mut master), ["Sta ys", "dba"]);
    let (state, message) = error(&mut connect(&cluster, "somebody"), "SELECT shard_query_json('SELECT 1')");
    assert_eq!(
        (state.as_str(), message.as_str()),
        ("42501", "role \"somebody\" has no login for the shards")
    );
    connect(&cluster, "Sta ys").batch_execute("SELECT shard_query_json('SELECT 1')").unwrap();
    // Nor does the execution that the role has started run with the logins of the other role.
    let named = "SELECT login_role FROM shardmaster.execution WHERE id = $1";
    assert_eq!(master.query_one(named, &[&execution]).unwrap().get::<_, String>(0), "\"Re porting\"");
    master.batch_execute("SELECT shard_login_set('somebody', 'deployer')").unwrap();
    let resume = |id: i64| format!("CALL shard_execute_resume({id}, retry => true)");
    let (state, message) = error(&mut master, &resume(execution));
    assert_eq!(state, "42704", "{message}");
    assert!(message.contains("no longer exists"), "{message}");
    assert_eq!(runs(&cluster), [0]);
    master.batch_execute(&resume(stays)).unwrap();
    assert_eq!(runs(&cluster), [1]);
}
