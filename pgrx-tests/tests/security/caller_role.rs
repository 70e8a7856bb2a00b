//! The caller of a function is the role for which EXECUTE was checked, in any session. Code of an admin also
//! runs in sessions of superusers, and in processes of the server without a caller.

use postgres::Client;
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{cluster, state_of};
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

/// Makes an admin who owns the schema `one`. The schema `secret` belongs to nobody of that level.
fn with_admin(config: &[&str]) -> (Cluster, Client) {
    let cluster = cluster(config);
    cluster
        .superuser()
        .unwrap()
        .batch_execute(
            "CREATE ROLE an_admin LOGIN; SELECT shard_grant('an_admin', 'admin');
             CREATE SCHEMA one AUTHORIZATION an_admin;
             CREATE SCHEMA secret; CREATE TABLE secret.t (id text PRIMARY KEY)",
        )
        .unwrap();
    let admin = cluster.master.connect(DATABASE, "an_admin").unwrap();
    (cluster, admin)
}

/// Returns the error of a refused statement, or `None` if it is not refused.
fn refusal(session: &mut Client, statement: &str) -> Option<String> {
    let error = session.batch_execute(statement).err()?;
    Some(format!("{} {}", state_of(&error), error.as_db_error().unwrap().message()))
}

fn texts(session: &mut Client, query: &str) -> Vec<String> {
    session.query(query, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

/// A function with its owner's rights that runs any statement.
const DOES: &str = "CREATE FUNCTION %.does(statement text) RETURNS void LANGUAGE plpgsql
    SECURITY DEFINER AS 'BEGIN EXECUTE statement; END'";

/// Below superuser nobody can add a connection string, register a table of others, or trust anybody on the
/// master's own server. This also holds for a SECURITY DEFINER function in a superuser's session.
#[test]
fn a_superusers_session_adds_nothing_to_an_admins_rights() {
    let (cluster, mut admin) = with_admin(&[]);
    let mut master = cluster.superuser().unwrap();
    let conninfo = cluster.master.conninfo(DATABASE, "postgres");
    admin.batch_execute(&DOES.replace('%', "one")).unwrap();
    master.execute("SELECT shard_add('alias', $1)", &[&conninfo]).unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('peek', 'range'), shard_assign_range(NULL, NULL, 'alias', 'peek')",
        )
        .unwrap();
    admin.batch_execute("SELECT shard_table_add('logins', 'password', 'peek')").unwrap();
    let quoted = conninfo.replace('\'', "''");
    for statement in [
        &format!("SELECT public.shard_add('evil', '{quoted}')"),
        "SELECT public.shard_add('evil', namespace => 'secret')",
        "SELECT public.shard_table_add('secret.t', 'id')",
        "SELECT public.shard_trust_owner('alias', 'an_admin')",
        "SELECT public.shard_range_midpoint('peek', NULL, NULL)",
    ] {
        let directly = refusal(&mut admin, statement).unwrap();
        assert!(directly.starts_with("42501 permission denied"), "{directly}");
        let inside = format!("SELECT one.does($s${statement}$s$)");
        assert_eq!(refusal(&mut master, &inside).as_ref(), Some(&directly), "{statement}");
        // A refused call does not change the session's role either.
        assert_eq!(texts(&mut master, "SELECT current_user::text"), ["postgres"]);
    }
    // Calls that an admin may make succeed, and their results belong to the admin.
    master
        .batch_execute(
            "SELECT one.does($s$SELECT public.shard_add('his', namespace => 'one'),
                                       public.shard_table_add('one.t', 'id')$s$)",
        )
        .unwrap();
    let named = "SELECT added_by FROM shardmaster.shard WHERE shard_key = 'his'
                 UNION ALL SELECT named_by FROM shardmaster.table_policy WHERE table_name = 'one.t'";
    assert_eq!(texts(&mut master, named), ["an_admin", "an_admin"]);
}

/// A role that was set counts, and so does the owner of a SECURITY DEFINER function.
#[test]
fn the_role_that_may_call_counts() {
    let (cluster, mut admin) = with_admin(&[]);
    let mut master = cluster.superuser().unwrap();
    let add = |name: &str| format!("SELECT shard_add('{name}', namespace => 'secret')");
    let denied = Some("42501 permission denied for schema \"secret\"".to_owned());
    for (take, give_back) in [
        ("SET ROLE an_admin", "RESET ROLE"),
        ("SET SESSION AUTHORIZATION an_admin", "RESET SESSION AUTHORIZATION"),
    ] {
        master.batch_execute(take).unwrap();
        assert_eq!(refusal(&mut master, &add("taken")), denied);
        assert_eq!(texts(&mut master, "SELECT current_user::text"), ["an_admin"]);
        // The role is also restored after an error that is caught.
        master
            .batch_execute(
                "DO $$ BEGIN
                     BEGIN PERFORM shard_add('taken', namespace => 'secret');
                     EXCEPTION WHEN insufficient_privilege THEN NULL; END;
                     IF current_user <> 'an_admin' THEN RAISE 'it is %', current_user; END IF;
                 END $$",
            )
            .unwrap();
        master.batch_execute(give_back).unwrap();
    }
    master.batch_execute(&add("plain")).unwrap();
    // A superuser's SECURITY DEFINER function counts as a superuser's call.
    master
        .batch_execute(&format!(
            "CREATE SCHEMA lent; GRANT USAGE ON SCHEMA lent TO PUBLIC; {}",
            DOES.replace('%', "lent")
        ))
        .unwrap();
    admin
        .batch_execute("SELECT lent.does($s$SELECT public.shard_add('lent', namespace => 'secret')$s$)")
        .unwrap();
    let added =
        "SELECT shard_key || ' ' || added_by FROM shardmaster.shard WHERE namespace = 'secret' ORDER BY 1";
    assert_eq!(texts(&mut master, added), ["lent postgres", "plain postgres"]);
}

/// An index whose expression calls `one.calls`, a function that is replaced. The results are in `one.said`.
const BAIT: &str = "CREATE FUNCTION one.calls() RETURNS void LANGUAGE plpgsql AS 'BEGIN END';
     CREATE FUNCTION one.say(x text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN x; END';
     CREATE TABLE one.said (routine text, answer text);
     CREATE TABLE one.bait (x text);
     CREATE INDEX ON one.bait (one.say(x));
     CREATE MATERIALIZED VIEW one.seen AS SELECT one.say('x');
     INSERT INTO one.bait SELECT i::text FROM generate_series(1, 300) i;
     CREATE FUNCTION one.try(routine text, statement text) RETURNS void LANGUAGE plpgsql AS $f$
     BEGIN
         EXECUTE statement;
         INSERT INTO one.said VALUES (routine, 'done');
     EXCEPTION WHEN OTHERS THEN INSERT INTO one.said VALUES (routine, SQLSTATE || ' ' || SQLERRM);
     END $f$;
     CREATE OR REPLACE FUNCTION one.say(x text) RETURNS text LANGUAGE plpgsql AS $f$
     BEGIN
         IF NOT EXISTS (SELECT FROM one.said) THEN PERFORM one.calls(); END IF;
         RETURN x;
     END $f$";

/// Routines that look, wait, or generate a number. Any other routine that is not refused fails the test.
const CHANGES_NOTHING: &str = "job_line shard_capacity shard_check shard_credentials shard_entries shard_executions shard_gateway_config shard_guards shard_jobs shard_lookup shard_lookup_conflicts shard_lookups shard_misplaced_runs \
    shard_of shard_range_midpoint shard_route shard_route_at shard_route_range \
    shard_reference_tables shard_reference_wait shard_report shard_routing_history shard_routing_version shard_sequences shard_services shard_snowflake_id \
    shard_snowflake_parts shard_split_check shard_split_diagnose shard_split_events \
    split_account split_in_vain shard_split_keys shard_split_lifecycle split_line shard_split_metrics shard_split_points \
    split_wait_for_change shard_split_tables shard_split_to_call shard_split_verification shard_split_wait shard_splits shard_status shard_survey shard_survey_report shard_survey_sql \
    shard_tables shard_tenant_usage shard_topology shard_trusted_owners";

/// A superuser's REINDEX runs code of the index's owner, at nobody's request. That code changes nothing by
/// any function, not even what its owner may change.
#[test]
fn maintenance_changes_nothing() {
    let (cluster, mut admin) = with_admin(&[]);
    let mut master = cluster.superuser().unwrap();
    admin.batch_execute(BAIT).unwrap();
    admin
        .batch_execute(
            "CREATE OR REPLACE FUNCTION one.calls() RETURNS void LANGUAGE plpgsql AS $f$
             DECLARE called record;
             BEGIN
                 FOR called IN
                     SELECT p.proname, format('SELECT * FROM %s.%I(%s)', p.pronamespace::regnamespace, p.proname, (
                                SELECT string_agg('NULL::' || format_type(a.t, NULL), ', ' ORDER BY a.n)
                                  FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY a (t, n))) AS statement
                       FROM pg_proc p
                      WHERE (p.pronamespace = 'public'::regnamespace AND p.proname LIKE 'shard%'
                             OR p.pronamespace = 'shardmaster'::regnamespace AND p.proname ~ '(_begin|_take|_step|_next_call|_wait_for_change|_line|_account|_in_vain|split_to)$')
                        AND p.prokind = 'f' AND has_function_privilege(p.oid, 'EXECUTE')
                 LOOP PERFORM one.try(called.proname, called.statement); END LOOP;
             END $f$",
        )
        .unwrap();
    for maintenance in ["REINDEX SCHEMA one", "ANALYZE one.bait", "REFRESH MATERIALIZED VIEW one.seen"] {
        master.batch_execute("TRUNCATE one.said").unwrap();
        master.batch_execute(maintenance).unwrap();
        let refused = "SELECT DISTINCT routine FROM one.said
            WHERE answer = '42501 cannot execute ' || CASE routine WHEN 'split_next_call' THEN 'shard_split_run'
                                                      WHEN 'execution_begin' THEN 'shard_execute' WHEN 'shard_assign_found' THEN 'shard_unassigned'
                                                      WHEN 'execution_take' THEN 'shard_execute_resume' WHEN 'execution_step' THEN 'shard_execute_resume'
                                                      WHEN 'guard_begin' THEN 'shard_guard_install' WHEN 'guard_step' THEN 'shard_guard_install'
                                                      WHEN 'misplaced_begin' THEN 'shard_misplaced_move' WHEN 'misplaced_step' THEN 'shard_misplaced_move'
                                                      WHEN 'shard_guard_drop' THEN 'shard_split_redirect_drop' WHEN 'shard_split_settle_for' THEN 'shard_split_auto_finish'
                                                      WHEN 'split_to' THEN 'shard_move'
                                                      ELSE routine END || '() within a security-restricted operation'";
        let refused: BTreeSet<String> = texts(&mut master, refused).into_iter().collect();
        let said: BTreeSet<String> =
            texts(&mut master, "SELECT DISTINCT routine FROM one.said").into_iter().collect();
        let others: BTreeSet<&str> = said.difference(&refused).map(String::as_str).collect();
        let expected: BTreeSet<&str> =
            CHANGES_NOTHING.split_whitespace().chain(["shard_for", "shard_query"]).collect();
        assert_eq!(others, expected, "{maintenance}");
        assert!(refused.len() > 40, "{maintenance}: {refused:?}");
    }
}

/// Autovacuum runs such code in a process of the server, which is a superuser's and has no session.
#[test]
fn autovacuum_lends_nobody_its_rights() {
    let (cluster, mut admin) = with_admin(&["autovacuum = on", "autovacuum_naptime = 1s"]);
    let conninfo = cluster.master.conninfo(DATABASE, "postgres").replace('\'', "''");
    admin.batch_execute(BAIT).unwrap();
    admin
        .batch_execute(&format!(
            "CREATE OR REPLACE FUNCTION one.calls() RETURNS void LANGUAGE plpgsql AS $f$
             BEGIN
                 PERFORM one.try('add', $s$SELECT public.shard_add('evil', '{conninfo}')$s$);
                 PERFORM one.try('own', $s$SELECT public.shard_add('own', namespace => 'one')$s$);
             END $f$"
        ))
        .unwrap();
    let began = Instant::now();
    let said = "SELECT DISTINCT routine || ': ' || answer FROM one.said ORDER BY 1";
    while texts(&mut admin, said).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "autovacuum has not come");
        thread::sleep(Duration::from_millis(200));
    }
    let refused = "42501 cannot execute shard_add() within a security-restricted operation";
    assert_eq!(texts(&mut admin, said), [format!("add: {refused}"), format!("own: {refused}")]);
    let mut master = cluster.superuser().unwrap();
    assert!(
        texts(&mut master, "SELECT shard_key FROM shard_topology() WHERE shard_key IN ('evil', 'own')")
            .is_empty()
    );
}
