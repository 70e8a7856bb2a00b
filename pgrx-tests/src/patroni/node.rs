//! One server of a pair: Patroni and its PostgreSQL.

use super::{LOOP_WAIT, Protection, RETRY_TIMEOUT, TTL, free_port};
use crate::process::Process;
use crate::{Result, env, server, wait};
use postgres::{Client, Config, NoTls};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A REST call of Patroni that takes longer counts as failed.
const REST_LIMIT: Duration = Duration::from_millis(800);
const GONE_LIMIT: Duration = Duration::from_secs(30);
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

pub struct Node {
    pub name: String,
    dir: PathBuf,
    pub port: u16,
    rest: u16,
    patroni: Option<Process>,
    is_frozen: bool,
}

impl Node {
    /// Writes Patroni's configuration. `parameters` are lines of YAML for the cluster's configuration.
    pub fn create(scope: &Scope<'_>, name: &str, dir: PathBuf) -> Result<Node> {
        fs::create_dir(&dir)?;
        let node = Node {
            name: name.into(),
            dir,
            port: free_port()?,
            rest: free_port()?,
            patroni: None,
            is_frozen: false,
        };
        fs::write(node.dir.join("patroni.yml"), node.yaml(scope)?)?;
        Ok(node)
    }

    pub fn start(&mut self) -> Result<()> {
        let mut patroni = Command::new("/usr/bin/patroni");
        patroni.current_dir(&self.dir).arg(self.dir.join("patroni.yml")).env_remove("RUST_BACKTRACE");
        let process = Process::start(&mut patroni, self.dir.join("log"))
            .map_err(|e| e.context("is patroni installed? `make ha` installs it"))?;
        fs::write(self.dir.join("patroni.pid"), process.pid().to_string())?;
        self.patroni = Some(process);
        Ok(())
    }

    /// Kills all processes of the server at once. Patroni notices it.
    pub fn kill_postgres(&self) -> Result<()> {
        signal_all_in(&self.data(), libc::SIGKILL).map(drop)
    }

    /// Kills Patroni and its server. Kills do not affect the kernel, so what was written to a file stays
    /// written, and `fsync = off` loses nothing here.
    pub fn kill(&mut self) -> Result<()> {
        self.kill_patroni();
        // This includes whatever Patroni was just running, like a rewind or a copy.
        wait::until("the processes of a node to be gone", GONE_LIMIT, || {
            Ok((self.signal_all(libc::SIGKILL)? == 0).then_some(()))
        })
    }

    /// Kills Patroni alone. Its server continues, and nobody looks after it.
    pub fn kill_patroni(&mut self) {
        if let Some(process) = self.patroni.take() {
            process.kill();
        }
    }

    /// Stops all processes where they are, with their sockets open.
    pub fn freeze(&mut self) -> Result<()> {
        self.is_frozen = true;
        self.signal_all(libc::SIGSTOP).map(drop)
    }

    /// Brings the node back, whatever was done to it.
    pub fn bring_back(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_frozen) {
            return self.signal_all(libc::SIGCONT).map(drop);
        }
        self.start()
    }

    /// Signals all processes, and returns their number.
    fn signal_all(&self, number: i32) -> Result<usize> {
        Ok(signal_all_in(&self.dir, number)? + signal_all_in(&self.data(), number)?)
    }

    pub fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    fn is_running(&self) -> bool {
        self.patroni.is_some() && !self.is_frozen
    }

    /// Whether it holds the leader's key and its server takes writes.
    pub fn is_leader(&self) -> bool {
        self.is_running() && self.rest_says("/primary")
    }

    /// Whether it may take over, because etcd names it as the synchronous standby.
    pub fn is_synchronous(&self) -> bool {
        self.is_running() && self.rest_says("/synchronous")
    }

    pub fn is_replica(&self) -> bool {
        self.is_running() && self.rest_says("/replica")
    }

    /// Whether Patroni's REST interface answers 200.
    fn rest_says(&self, path: &str) -> bool {
        let ask = || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.rest))?;
            stream.set_read_timeout(Some(REST_LIMIT))?;
            stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            Ok(answer.get(..12).is_some_and(|status| status.ends_with(b"200")))
        };
        ask().unwrap_or(false)
    }

    pub fn superuser(&self, database: &str) -> Result<Client> {
        let mut config = Config::new();
        config.host_path(&self.dir).port(self.port).user("postgres").dbname(database);
        Ok(config.connect_timeout(CONNECT_LIMIT).connect(NoTls)?)
    }

    pub fn socket_dir(&self) -> &Path {
        &self.dir
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Returns the output of Patroni and the server.
    pub fn said(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    fn yaml(&self, scope: &Scope<'_>) -> Result<String> {
        let parameters: String = scope.parameters.iter().map(|line| format!("        {line}\n")).collect();
        let (dir, bindir) = (self.dir.display(), env::bindir()?);
        Ok(format!(
            "scope: {scope}
name: {name}
restapi:
  listen: 127.0.0.1:{rest}
  connect_address: 127.0.0.1:{rest}
etcd3:
  host: 127.0.0.1:{etcd}
bootstrap:
  dcs:
    ttl: {TTL}
    loop_wait: {LOOP_WAIT}
    retry_timeout: {RETRY_TIMEOUT}
    # A leader whose server dies is not started again in its place: the other one takes over.
    primary_start_timeout: 0
    synchronous_mode: {synchronous}
    synchronous_mode_strict: {strict}
    postgresql:
      use_pg_rewind: true
      remove_data_directory_on_rewind_failure: true
      remove_data_directory_on_diverged_timelines: true
      parameters:
{parameters}  initdb:
    - encoding: UTF8
    - locale: C.UTF-8
    - no-sync
postgresql:
  listen: 127.0.0.1:{port}
  connect_address: 127.0.0.1:{port}
  data_dir: {dir}/data
  bin_dir: {bindir}
  pgpass: {dir}/pgpass
  use_unix_socket: true
  use_unix_socket_repl: true
  authentication:
    superuser: {{username: postgres}}
    replication: {{username: postgres}}
    rewind: {{username: postgres}}
  pg_hba:
    - local all all trust
    - local replication all trust
    - host all postgres 127.0.0.1/32 trust
    - host replication postgres 127.0.0.1/32 trust
  parameters:
    unix_socket_directories: {dir}
",
            scope = scope.name,
            name = self.name,
            rest = self.rest,
            port = self.port,
            etcd = scope.etcd,
            bindir = bindir.display(),
            synchronous = scope.protection != Protection::None,
            strict = scope.protection == Protection::Strict,
        ))
    }
}

/// Signals all processes whose working directory it is, and returns their number.
fn signal_all_in(dir: &Path, number: i32) -> Result<usize> {
    if !dir.exists() {
        return Ok(0);
    }
    let found = server::processes_in(dir)?;
    for pid in &found {
        let _ = server::signal(*pid, number);
    }
    Ok(found.len())
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.said();
            let from = said.char_indices().rev().nth(4000).map_or(0, |(index, _)| index);
            eprintln!("--- end of the log of node \"{}\"\n{}", self.name, &said[from..]);
        }
        let _ = self.kill();
        if let Some(kept) = std::env::var_os("SHARDMASTER_HA_LOGS") {
            let _ = fs::copy(self.dir.join("log"), Path::new(&kept).join(format!("{}.log", self.name)));
        }
    }
}

/// The settings that both servers of a pair share.
pub struct Scope<'a> {
    pub name: &'a str,
    pub etcd: u16,
    pub protection: Protection,
    pub parameters: &'a [String],
}
