//! Each way of authenticating the mover, over TLS, with real servers.

use shardmaster_tests::cluster::{DATABASE, MOVER};
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::fixture::{self, LIMIT, plan, rows, to_pending};
use shardmaster_tests::split::Split;
use shardmaster_tests::tls::Authority;
use shardmaster_tests::vault::{HOST, Vault, key, set_rules};
use shardmaster_tests::{env, wait};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Runs a split there and back with the current endpoint.
fn carries_splits(vault: &Vault) {
    vault.require_connects().unwrap();
    for (source, target) in [("shard_a", "shard_b"), ("shard_b", "shard_a")] {
        let split = Split::plan(&vault.cluster, source, target, &["moves"]).unwrap();
        fixture::finished(&split);
        split.drop_guard().unwrap();
    }
    assert_eq!(rows(&vault.cluster, 0).len(), 300);
}

fn waits_for(vault: &Vault, text: &str) {
    let mut master = vault.cluster.superuser().unwrap();
    let says = format!(
        "SELECT EXISTS (SELECT FROM shardmaster.split_plan WHERE activity = 'retrying' AND waiting_for LIKE '%{text}%')"
    );
    wait::until_true(&mut master, &format!("the split to wait because of {text}"), LIMIT, &says).unwrap();
}

fn change(vault: &Vault, value: &str) {
    let statement = format!("UPDATE items SET val = '{value}' WHERE tenant = 'moves'");
    fixture::source(&vault.cluster).batch_execute(&statement).unwrap();
}

/// In the middle of a split the shard's secret changes, and then the master's. The split waits meanwhile, and
/// loses nothing.
fn survives_rotation(vault: &Vault, of_shard: impl FnOnce(), said: &str, of_master: impl FnOnce()) {
    let split = plan(&vault.cluster);
    to_pending(&split);
    of_shard();
    vault.end_sessions().unwrap();
    change(vault, "meanwhile");
    waits_for(vault, said);
    of_master();
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert!(rows(&vault.cluster, 1).values().all(|val| val.starts_with("meanwhile ")));
    split.finish(LIMIT).unwrap();
    split.drop_guard().unwrap();
    let back = Split::plan(&vault.cluster, "shard_b", "shard_a", &["moves"]).unwrap();
    fixture::finished(&back);
    back.drop_guard().unwrap();
}

/// Certificates of another authority, for another host, or expired ones are refused.
fn refuses_wrong_certificates(vault: &mut Vault) {
    let other = Authority::new(&vault.directory, "stranger").unwrap();
    let stranger = other.issue(HOST, 1).unwrap();
    let elsewhere = vault.authority.issue("elsewhere", 1).unwrap();
    let expired = vault.authority.issue(HOST, 0).unwrap();
    for (certificate, text, alert) in [
        (&stranger, "certificate verify failed", "unknown ca"),
        (&elsewhere, "does not match host name", ""),
        (&expired, "certificate verify failed", "certificate expired"),
    ] {
        vault.show(certificate).unwrap();
        let refused = vault.refusal().unwrap();
        assert!(refused.contains(text), "{refused}");
        // libpq reports the reason to the server, and not to us.
        let server = &vault.cluster.servers[1];
        wait::until(alert, LIMIT, || Ok(server.log_tail(4_000).contains(alert).then_some(()))).unwrap();
    }
    vault.show(&vault.authority.issue(HOST, 2).unwrap()).unwrap();
    vault.require_connects().unwrap();
}

fn with_password() -> Vault {
    let vault = Vault::new("scram-sha-256", &[]).unwrap();
    vault.set_password("first").unwrap();
    vault.set_credential("b", "password", r#"{"password": "first"}"#).unwrap();
    vault.lead_to(&vault.conninfo(), "b").unwrap();
    vault
}

#[test]
fn a_password_carries_splits_and_no_other_server_gets_it() {
    let mut vault = with_password();
    carries_splits(&vault);
    let query = "SELECT detail FROM shard_check('shard_b') WHERE item = 'encryption'";
    let encrypted: String = vault.cluster.superuser().unwrap().query_one(query, &[]).unwrap().get(0);
    assert!(encrypted.contains("TLS"), "{encrypted}");
    refuses_wrong_certificates(&mut vault);
    // A server with the right certificate that asks for the plain password does not get it.
    let server = &vault.cluster.servers[1];
    set_rules(server, "local all all trust\nhostssl all all 127.0.0.0/8 password\n", "").unwrap();
    let refused = vault.refusal().unwrap();
    // libpq 16 and later first check the requested method.
    let is_said =
        ["channel binding", "authentication method requirement"].iter().any(|text| refused.contains(text));
    assert!(is_said, "{refused}");
    // The connection string can allow it.
    vault.lead_to(&(vault.conninfo() + " channel_binding=prefer"), "b").unwrap();
    vault.require_connects().unwrap();
    vault.lead_to(&vault.conninfo(), "b").unwrap();
    // The shard cannot be reached without TLS either.
    let plain = vault.conninfo().replace("sslmode=verify-full", "sslmode=disable");
    vault.lead_to(&plain, "b").unwrap();
    assert!(vault.refusal().unwrap().contains("no encryption"), "{:?}", vault.refusal());
}

#[test]
fn a_certificate_of_the_keychain_carries_splits_and_is_in_no_file() {
    let mut vault = Vault::new("cert", &[]).unwrap();
    let issued = vault.authority.issue(MOVER, 1).unwrap();
    let read = |path: &Path| fs::read_to_string(path).unwrap().replace('\n', "\\n");
    let secret =
        format!(r#"{{"certificate": "{}", "key": "{}"}}"#, read(&issued.certificate), read(&issued.key));
    vault.set_credential("b", "mtls_cert", &secret).unwrap();
    vault.lead_to(&vault.conninfo(), "b").unwrap();
    carries_splits(&vault);
    // This line of the key is in no other key.
    let key = fs::read_to_string(&issued.key).unwrap();
    let line = key.lines().nth(5).unwrap();
    fs::remove_file(&issued.key).unwrap();
    let found = env::run(
        std::process::Command::new("sh")
            .args(["-c", "grep -rlaF -- \"$0\" \"$1\" || true", line])
            .arg(vault.cluster.master.data().parent().unwrap().parent().unwrap()),
    );
    assert_eq!(found.unwrap(), "", "files with the key");
    if !is_long_run() {
        return;
    }
    refuses_wrong_certificates(&mut vault);
    // The shard now requires certificates of another authority, so the old ones are not accepted.
    let other = Authority::new(&vault.directory, "other").unwrap();
    let issued = other.issue(MOVER, 1).unwrap();
    let secret =
        format!(r#"{{"certificate": "{}", "key": "{}"}}"#, read(&issued.certificate), read(&issued.key));
    let server = &vault.cluster.servers[1];
    let of_shard = || {
        server.configure(&[&format!("ssl_ca_file = '{}'", other.root().display())]).unwrap();
        server.reload().unwrap();
        wait::until("the server to ask for others", LIMIT, || Ok(vault.refusal().ok().map(drop))).unwrap();
    };
    let of_master = || vault.set_credential("b", "mtls_cert", &secret).unwrap();
    survives_rotation(&vault, of_shard, "unknown ca", of_master);
}

/// Starts a metadata server of a cloud, which returns this token.
fn metadata_server(token: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut asked = [0; 4096];
            let length = stream.read(&mut asked).unwrap_or(0);
            let asked = String::from_utf8_lossy(&asked[..length]).into_owned();
            let path = "GET /computeMetadata/v1/instance/service-accounts/default/token ";
            let known = asked.starts_with(path) && asked.contains("Metadata-Flavor: Google\r\n");
            let body = format!(r#"{{"access_token":"{token}","expires_in":3599,"token_type":"Bearer"}}"#);
            let status = if known { "200 OK" } else { "404 Not Found" };
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    address
}

/// Writes a program of this name, which prints a token if it is called correctly.
fn program(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn tokens_of_files_commands_and_clouds_carry_splits() {
    // The server gets the token as a plain password, as those of clouds do.
    let mut vault = Vault::new("password", &[]).unwrap();
    let expected = format!(
        "rds generate-db-auth-token --hostname {HOST} --port 5432 --username {MOVER} --region eu-west-1"
    );
    program(&vault.directory, "aws", &format!("[ \"$*\" = '{expected}' ] && echo token-of-aws"));
    let path = format!("{}:{}", vault.directory.display(), std::env::var("PATH").unwrap());
    vault.cluster.master.set_environment("PATH", &path);
    vault.cluster.master.restart(shardmaster_tests::server::Stop::Fast).unwrap();
    let file = vault.directory.join("token");
    fs::write(&file, "token-of-file\n").unwrap();
    let metadata = metadata_server("token-of-google");
    for (kind, secret, token) in [
        ("token_file", format!(r#"{{"file": "{}"}}"#, file.display()), "token-of-file"),
        (
            "token_command",
            r#"{"command": "echo \"token-of-$PGUSER-$PGPORT\""}"#.to_owned(),
            "token-of-mover-5432",
        ),
        ("gcp_workload_identity", format!(r#"{{"host": "{metadata}"}}"#), "token-of-google"),
        ("aws_iam", r#"{"region": "eu-west-1"}"#.to_owned(), "token-of-aws"),
    ] {
        vault.set_password(token).unwrap();
        vault.set_credential(kind, kind, &secret).unwrap();
        vault.lead_to(&vault.conninfo(), kind).unwrap();
        if kind == "token_file" || is_long_run() {
            carries_splits(&vault);
        } else {
            vault.require_connects().unwrap();
        }
    }
    refuses_wrong_certificates(&mut vault);
    // An expired token is fetched again, and a token in a file at once.
    vault.lead_to(&vault.conninfo(), "token_file").unwrap();
    let (of_shard, of_master) =
        (|| vault.set_password("renewed").unwrap(), || fs::write(&file, "renewed").unwrap());
    vault.set_password("token-of-file").unwrap();
    survives_rotation(&vault, of_shard, "credential \"token_file\"", of_master);
    for (command, text) in [
        ("exit 3", "exit status: 3"),
        ("sleep 60", "has not ended within"),
        ("yes", "writes more than"),
        ("printf 'a\\\\nb'", "several lines"),
        ("true", "empty"),
    ] {
        let secret = format!(r#"{{"command": "{command}"}}"#);
        vault.set_credential("token_command", "token_command", &secret).unwrap();
        vault.lead_to(&vault.conninfo(), "token_command").unwrap();
        let refused = vault.refusal().unwrap();
        assert!(refused.contains(text), "{refused}");
    }
}

#[test]
fn the_servers_own_account_is_known_by_a_socket() {
    let vault = Vault::new("reject", &[]).unwrap();
    let user = env::run(std::process::Command::new("id").arg("-un")).unwrap();
    let rules =
        format!("local all postgres trust\nlocal all {MOVER} peer map=masters\nlocal all all trust\n");
    set_rules(&vault.cluster.servers[1], &rules, &format!("masters {} {MOVER}\n", user.trim())).unwrap();
    let mut master = vault.cluster.superuser().unwrap();
    let conninfo = vault.cluster.servers[1].conninfo(DATABASE, MOVER);
    let call = "SELECT shard_set_endpoint('shard_b', $1, auth_kind => 'peer')";
    master.execute(call, &[&conninfo]).unwrap();
    if is_long_run() {
        carries_splits(&vault);
    } else {
        vault.require_connects().unwrap();
    }
    set_rules(&vault.cluster.servers[1], &rules, &format!("masters nobody {MOVER}\n")).unwrap();
    assert!(vault.refusal().unwrap().contains("Peer authentication failed"));
}

/// The shard's password changes first, and then the master's. The split waits, and loses nothing.
#[test]
#[ignore = "make test-all: a rotation meanwhile; make test has tokens_of_files_commands_and_clouds_carry_splits"]
fn passwords_and_master_keys_rotate_in_the_middle_of_a_split() {
    let vault = with_password();
    let split = plan(&vault.cluster);
    to_pending(&split);
    vault.set_password("second").unwrap();
    vault.end_sessions().unwrap();
    change(&vault, "meanwhile");
    waits_for(&vault, "credential \"b\"");
    vault.set_credential("b", "password", r#"{"password": "second"}"#).unwrap();
    split.wait_settled(LIMIT).unwrap();
    // A new master key is added in front, all credentials are encrypted again, and the old key is removed.
    vault.write_keys(&[&key('b'), &key('a')]).unwrap();
    let mut master = vault.cluster.superuser().unwrap();
    let status = "SELECT value FROM shard_status() WHERE item = 'keychain' AND ok";
    let before: String = master.query_one(status, &[]).unwrap().get(0);
    assert!(before.contains("shard_keychain_rotate()"), "{before}");
    assert_eq!(master.query_one("SELECT shard_keychain_rotate()", &[]).unwrap().get::<_, i64>(0), 1);
    vault.write_keys(&[&key('b')]).unwrap();
    vault.end_sessions().unwrap();
    change(&vault, "later");
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert!(rows(&vault.cluster, 1).values().all(|val| val.starts_with("later ")));
    // Without the key the split waits, and reports the reason.
    vault.write_keys(&[&key('a')]).unwrap();
    vault.end_sessions().unwrap();
    split.call("finish").unwrap();
    waits_for(&vault, "master key");
    vault.write_keys(&[&key('b')]).unwrap();
    split.finish(LIMIT).unwrap();
    assert!(rows(&vault.cluster, 0).is_empty());
}

/// The master lacks its key, and everything that does not need it continues.
#[test]
fn a_master_without_its_key_says_so_and_the_rest_goes_on() {
    let vault = with_password();
    let mut master = vault.cluster.superuser().unwrap();
    let mut status = || -> (String, bool) {
        let row =
            master.query_one("SELECT value, ok FROM shard_status() WHERE item = 'keychain'", &[]).unwrap();
        (row.get(0), row.get(1))
    };
    assert!(status().1);
    fs::remove_file(vault.key_path()).unwrap();
    for (write, text) in [
        (None, "No such file"),
        (Some(""), "has no key"),
        (Some("0123"), "does not have 64 hexadecimal digits"),
        (Some(key('c').as_str()), "which is missing"),
    ] {
        if let Some(text) = write {
            vault.write_keys(&[text]).unwrap();
        }
        let (said, ok) = status();
        assert!(!ok && said.contains(text), "{said}");
        let refused = vault.refusal().unwrap();
        assert!(refused.contains(text) && !refused.contains("0123"), "{refused}");
    }
    vault.write_keys(&[&key('a')]).unwrap();
    fs::set_permissions(vault.key_path(), Permissions::from_mode(0o644)).unwrap();
    assert!(status().0.contains("operating-system user alone can read"), "{}", status().0);
    // Routes, and shards without a secret.
    let mut client = vault.cluster.client().unwrap();
    assert_eq!(client.query_one("SELECT shard_of('moves')", &[]).unwrap().get::<_, String>(0), "shard_a");
    let other = "SELECT ok FROM shard_check('shard_a') WHERE item = 'connect'";
    assert!(vault.cluster.superuser().unwrap().query_one(other, &[]).unwrap().get::<_, bool>(0));
    fs::set_permissions(vault.key_path(), Permissions::from_mode(0o600)).unwrap();
    assert!(status().1);
    vault.require_connects().unwrap();
    // With one changed bit it is not a credential any more.
    vault
        .cluster
        .superuser()
        .unwrap()
        .batch_execute(
            "UPDATE shardmaster.keychain SET sealed = set_bit(sealed, 300, 1 - get_bit(sealed, 300))",
        )
        .unwrap();
    assert!(vault.refusal().unwrap().contains("was changed"));
    assert!(!status().1);
}

/// The key comes from a command, or from the environment of the server.
#[test]
fn the_master_key_comes_by_a_command_or_by_the_environment() {
    let mut vault = with_password();
    let command = format!("cat '{}'", vault.key_path().display());
    vault.cluster.master.configure(&["shardmaster.master_key_file = ''"]).unwrap();
    let settings = [format!("shardmaster.master_key_command = '{}'", command.replace('\'', "''"))];
    vault.cluster.master.configure(&[&settings[0]]).unwrap();
    vault.cluster.master.restart(shardmaster_tests::server::Stop::Fast).unwrap();
    vault.require_connects().unwrap();
    vault.cluster.set("shardmaster.master_key_command", "sleep 100").unwrap();
    wait::until("the command to be the other one", LIMIT, || {
        Ok(vault.refusal().ok().filter(|text| text.contains("has not ended within 5 s")).map(drop))
    })
    .unwrap();
    vault.cluster.superuser().unwrap().batch_execute("ALTER SYSTEM RESET ALL").unwrap();
    vault.cluster.master.configure(&["shardmaster.master_key_command = ''"]).unwrap();
    vault.cluster.master.set_environment("SHARDMASTER_MASTER_KEY", &key('a'));
    vault.cluster.master.restart(shardmaster_tests::server::Stop::Fast).unwrap();
    vault.require_connects().unwrap();
    // A command for a token does not have the key in its environment.
    set_rules(&vault.cluster.servers[1], "local all all trust\nhostssl all all 127.0.0.0/8 password\n", "")
        .unwrap();
    let secret = r#"{"command": "echo \"${SHARDMASTER_MASTER_KEY:-first}\""}"#;
    vault.set_credential("of command", "token_command", secret).unwrap();
    vault.lead_to(&vault.conninfo(), "of command").unwrap();
    vault.require_connects().unwrap();
}

/// A file that is not a plain one is not opened, because a process that opens a pipe without a writer notices
/// neither a cancel nor a shutdown.
#[test]
fn a_pipe_in_the_place_of_a_file_keeps_nobody() {
    let vault = with_password();
    let pipe = vault.directory.join("pipe");
    env::run(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe)).unwrap();
    vault.set_credential("pipe", "token_file", &format!(r#"{{"file": "{}"}}"#, pipe.display())).unwrap();
    vault.lead_to(&vault.conninfo(), "pipe").unwrap();
    let refused = within(Duration::from_secs(20), || vault.refusal().unwrap());
    assert!(refused.contains("not a plain file"), "{refused}");
    // libpq does not open such files of a connection string either.
    vault.set_credential("b", "password", r#"{"password": "first"}"#).unwrap();
    for keyword in ["sslrootcert", "sslcert", "sslcrl"] {
        vault.lead_to(&format!("{} {keyword}={}", vault.conninfo(), pipe.display()), "b").unwrap();
        let refused = within(Duration::from_secs(20), || vault.refusal().unwrap());
        assert!(refused.contains("not a plain file") && refused.contains(keyword), "{refused}");
    }
    fs::rename(&pipe, vault.key_path()).unwrap();
    let status = || -> String {
        let status = "SELECT value FROM shard_status() WHERE item = 'keychain'";
        vault.cluster.superuser().unwrap().query_one(status, &[]).unwrap().get(0)
    };
    let said = within(Duration::from_secs(20), status);
    assert!(said.contains("not a plain file"), "{said}");
}

/// Returns the result of a call that must end in time.
fn within<T: Send>(limit: Duration, call: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let calling = scope.spawn(call);
        let until = Instant::now() + limit;
        while !calling.is_finished() {
            if Instant::now() >= until {
                eprintln!("the call has not ended within {limit:?}");
                std::process::abort();
            }
            thread::sleep(Duration::from_millis(20));
        }
        calling.join().unwrap()
    })
}
