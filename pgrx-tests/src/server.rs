//! One throw-away PostgreSQL server.

use crate::env::Template;
use crate::{Error, Result, env, wait};
use postgres::config::TargetSessionAttrs;
use postgres::{Client, Config, NoTls};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Crash recovery under load takes its time on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(180);
/// The limit for connecting to one of several servers.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// The ways to stop a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Ends sessions and writes a checkpoint.
    Fast,
    /// Crashes all processes. The next start recovers.
    Immediate,
    /// Sends SIGKILL to the postmaster. Its children notice and leave.
    Kill,
}

impl Stop {
    fn signal(self) -> i32 {
        match self {
            Stop::Fast => libc::SIGINT,
            Stop::Immediate => libc::SIGQUIT,
            Stop::Kill => libc::SIGKILL,
        }
    }
}

/// A server on a unix socket in a directory of its own. It is stopped when dropped.
pub struct Server {
    name: String,
    dir: PathBuf,
    /// The directory of its programs.
    bindir: PathBuf,
    postmaster: Option<Child>,
    /// Socket directories and ports of servers that are managed elsewhere, one of which takes writes. It is
    /// empty for a server of our own.
    others: Vec<(PathBuf, u16)>,
    /// More environment variables of the server.
    environment: Vec<(String, String)>,
}

impl Server {
    /// Makes a server and starts it. `config` holds more lines of postgresql.conf.
    pub fn start(name: &str, config: &[&str]) -> Result<Server> {
        let mut server = Server::create(name, config)?;
        server.run()?;
        Ok(server)
    }

    /// Makes a server without starting it. Commits are durable unless `config` says otherwise, because tests
    /// crash servers.
    pub fn create(name: &str, config: &[&str]) -> Result<Server> {
        Server::create_of(Template::Plain, name, config)
    }

    /// Makes a server from a template without starting it.
    pub fn create_of(template: Template, name: &str, config: &[&str]) -> Result<Server> {
        let (number, dir) = new_directory()?;
        env::copy_template(template, &env::bindir()?, &dir.join("data"), number)?;
        Server::created(name, config, dir, env::bindir()?)
    }

    /// Makes and starts a server of another major version.
    pub fn start_major(major: u32, name: &str, config: &[&str]) -> Result<Server> {
        Server::start_with(env::bindir_of(major)?, name, config)
    }

    /// Makes and starts a server of another major version with the extension's files.
    pub fn start_built(major: u32, name: &str, config: &[&str]) -> Result<Server> {
        Server::start_with(env::bindir_built(major)?, name, config)
    }

    /// Several servers, managed elsewhere, that clients use as one. Clients use whichever of them takes writes.
    pub fn managed(name: &str, dir: PathBuf, others: Vec<(PathBuf, u16)>) -> Result<Server> {
        Ok(Server {
            name: name.into(),
            dir,
            bindir: env::bindir()?,
            postmaster: None,
            others,
            environment: Vec::new(),
        })
    }

    fn start_with(bindir: PathBuf, name: &str, config: &[&str]) -> Result<Server> {
        let (number, dir) = new_directory()?;
        env::copy_template(Template::Plain, &bindir, &dir.join("data"), number)?;
        let mut server = Server::created(name, config, dir, bindir)?;
        server.run()?;
        Ok(server)
    }

    fn created(name: &str, config: &[&str], dir: PathBuf, bindir: PathBuf) -> Result<Server> {
        let others = Vec::new();
        let server =
            Server { name: name.into(), dir, bindir, postmaster: None, others, environment: Vec::new() };
        server.configure(&[
            "listen_addresses = ''",
            &format!("unix_socket_directories = '{}'", server.dir.display()),
            "max_connections = 100",
            "max_prepared_transactions = 20",
            "max_worker_processes = 24",
            // Compiling here never pays off; it would cost a fifth of a second each time.
            "jit = off",
            "log_line_prefix = '%m [%p] %q%a '",
        ])?;
        server.configure(config)?;
        Ok(server)
    }

    /// Stops the server and lets pg_upgrade make one of another major version out of it, with the same
    /// configuration, ready to start. The old data directory is `data.old`.
    pub fn upgrade(&mut self, major: u32) -> Result<()> {
        self.stop(Stop::Fast)?;
        let (bindir, old) = (env::bindir_built(major)?, self.dir.join("data.old"));
        fs::rename(self.data(), &old)?;
        env::initdb_for_upgrade(&bindir, &self.data())?;
        for name in ["postgresql.conf", "postgresql.auto.conf"] {
            let settings = fs::read_to_string(old.join(name))?;
            let path = self.data().join(name);
            let defaults = fs::read_to_string(&path)?;
            // Settings that initdb leaves at their defaults are comments.
            let ours = settings.lines().skip_while(|line| !line.starts_with("listen_addresses"));
            let ours: Vec<&str> =
                if name == "postgresql.conf" { ours.collect() } else { settings.lines().collect() };
            fs::write(&path, defaults + &ours.join("\n") + "\n")?;
        }
        let mut upgrade = Command::new(bindir.join("pg_upgrade"));
        upgrade.current_dir(&self.dir).env_remove("RUST_BACKTRACE");
        upgrade.args(["-U", "postgres", "-d"]).arg(&old).arg("-D").arg(self.data());
        upgrade.arg("-b").arg(&self.bindir).arg("-B").arg(&bindir).arg("-s").arg(&self.dir);
        env::run(&mut upgrade)?;
        self.bindir = bindir;
        Ok(())
    }

    /// Makes an empty cluster in the place of one that was put aside, with the same configuration.
    pub fn make_anew(&self) -> Result<()> {
        let (number, scratch) = new_directory()?;
        env::copy_template(Template::Plain, &self.bindir, &self.data(), number)?;
        fs::remove_dir(scratch)?;
        let before = fs::read_to_string(self.data().with_file_name("aside").join("postgresql.conf"))?;
        Ok(fs::write(self.data().join("postgresql.conf"), before)?)
    }

    /// Returns the next transaction id from the control file of the stopped server.
    pub fn next_xid(&self) -> Result<String> {
        let control = env::run(Command::new(self.bindir.join("pg_controldata")).arg(self.data()))?;
        let line = control.lines().find_map(|line| line.strip_prefix("Latest checkpoint's NextXID:"));
        Ok(line.ok_or("pg_controldata shows no NextXID")?.trim().to_owned())
    }

    /// Makes a streaming standby of another server, ready to start.
    pub fn standby_of(primary: &Server, name: &str) -> Result<Server> {
        let server = Server::create(name, &[])?;
        fs::remove_dir_all(server.data())?;
        let mut backup = Command::new(env::bindir()?.join("pg_basebackup"));
        backup.args(["-R", "-X", "stream", "-c", "fast", "-N", "-p", "5432", "-U", "postgres", "-h"]);
        env::run(backup.arg(primary.socket_dir()).arg("-D").arg(server.data()))?;
        server.configure(&[&format!("unix_socket_directories = '{}'", server.dir.display())])?;
        // -R writes every option that the program's libpq knows. The server uses the extension's libpq for
        // everything, and that may be an earlier version, if an installation has its own libpq without TLS
        // (scripts/lib.sh).
        let conninfo =
            format!("primary_conninfo = 'host={} port=5432 user=postgres'\n", primary.socket_dir().display());
        let settings = server.data().join("postgresql.auto.conf");
        let known = fs::read_to_string(&settings)?;
        fs::write(&settings, known + &conninfo)?;
        Ok(server)
    }

    /// Ends the standby's recovery; returns when it takes writes.
    pub fn promote(&self) -> Result<()> {
        let promoted: bool =
            self.superuser("postgres")?.query_one("SELECT pg_promote(true, 60)", &[])?.get(0);
        if promoted { Ok(()) } else { Err(format!("\"{}\" was not promoted in time", self.name).into()) }
    }

    /// Appends to postgresql.conf. It takes effect at the next start or `reload`.
    pub fn configure(&self, lines: &[&str]) -> Result<()> {
        let path = self.data().join("postgresql.conf");
        let mut text = fs::read_to_string(&path)?;
        for line in lines {
            text += line;
            text.push('\n');
        }
        Ok(fs::write(&path, text)?)
    }

    /// Starts the server and waits until it accepts connections.
    pub fn run(&mut self) -> Result<()> {
        self.spawn()?;
        self.wait_ready()
    }

    /// Sets a variable of the server's environment, from its next start on.
    pub fn set_environment(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Starts the postmaster without waiting for it.
    pub fn spawn(&mut self) -> Result<()> {
        self.spawn_with(&[])
    }

    /// Starts the postmaster with more arguments, without waiting for it.
    pub fn spawn_with(&mut self, arguments: &[&str]) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let child = Command::new(self.bindir.join("postgres"))
            .arg("-D")
            .arg(self.data())
            .args(arguments)
            // This adds backtraces to panics. None of the errors may show them to a client.
            .env("RUST_BACKTRACE", "1")
            // Short sessions that plan long queries need the memory that the previous one has freed.
            // Returning it to the system each time is a tenth of what servers do here.
            .env("MALLOC_TRIM_THRESHOLD_", "33554432")
            .env("MALLOC_MMAP_THRESHOLD_", "16777216")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.postmaster = Some(child);
        Ok(())
    }

    /// Waits until the server accepts connections.
    pub fn wait_ready(&mut self) -> Result<()> {
        let (name, log) = (self.name.clone(), self.log_path());
        let what = format!("server \"{name}\" to start");
        let config = self.config("postgres", "postgres");
        wait::until(&what, START_LIMIT, || {
            if let Some(status) = self.exit_status()? {
                return Err(format!("server \"{name}\" ended: {status}\n{}", tail(&log, 4000)).into());
            }
            Ok(config.connect(NoTls).ok().map(drop))
        })
    }

    fn exit_status(&mut self) -> Result<Option<std::process::ExitStatus>> {
        Ok(match &mut self.postmaster {
            Some(child) => child.try_wait()?,
            None => return Err(format!("server \"{}\" is not running", self.name).into()),
        })
    }

    /// Stops the server and waits until its postmaster is gone.
    pub fn stop(&mut self, how: Stop) -> Result<()> {
        let Some(mut child) = self.postmaster.take() else { return Ok(()) };
        // A server that hangs does not receive the signal.
        self.wake()?;
        signal(child.id(), how.signal())?;
        let what = format!("server \"{}\" to stop ({how:?})", self.name);
        let result = wait::until(&what, STOP_LIMIT, || Ok(child.try_wait()?.map(drop)));
        if result.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if how == Stop::Kill {
            self.wait_orphans()?;
        }
        result
    }

    /// After SIGKILL of the postmaster, a new one refuses to start while an old backend holds the shared memory.
    fn wait_orphans(&self) -> Result<()> {
        let data = self.data();
        wait::until("backends of the killed postmaster to leave", STOP_LIMIT, || {
            Ok(processes_in(&data)?.is_empty().then_some(()))
        })
    }

    /// Stops the server and copies its disk. There is one copy at a time.
    pub fn copy_disk(&mut self) -> Result<()> {
        self.stop(Stop::Fast)?;
        env::run(Command::new("cp").arg("-a").arg(self.data()).arg(self.disk_copy()))?;
        self.run()
    }

    /// Stops the server and replaces its disk by the copy.
    pub fn set_disk_back(&mut self, how: Stop) -> Result<()> {
        self.stop(how)?;
        fs::remove_dir_all(self.data())?;
        Ok(fs::rename(self.disk_copy(), self.data())?)
    }

    fn disk_copy(&self) -> PathBuf {
        self.data().with_file_name("copy of the disk")
    }

    pub fn restart(&mut self, how: Stop) -> Result<()> {
        self.stop(how)?;
        self.run()
    }

    /// Stops all its processes in the middle of whatever they do. The server hangs, and its sockets stay open.
    pub fn hang(&self) -> Result<()> {
        self.signal_all(libc::SIGSTOP)
    }

    /// Lets the processes continue.
    pub fn wake(&self) -> Result<()> {
        self.signal_all(libc::SIGCONT)
    }

    fn signal_all(&self, number: i32) -> Result<()> {
        for pid in processes_in(&self.data())? {
            let sent = signal(pid, number);
            // A process that has ended meanwhile needs no signal.
            if sent.is_err() && processes_in(&self.data())?.contains(&pid) {
                return sent;
            }
        }
        Ok(())
    }

    pub fn reload(&self) -> Result<()> {
        self.superuser("postgres")?.batch_execute("SELECT pg_reload_conf()")?;
        Ok(())
    }

    pub fn is_running(&self) -> bool {
        self.postmaster.is_some()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub fn socket_dir(&self) -> &Path {
        &self.dir
    }

    pub fn log_path(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Returns the last `bytes` of the server's log.
    pub fn log_tail(&self, bytes: u64) -> String {
        tail(&self.log_path(), bytes)
    }

    /// Returns a libpq connection string for this server.
    pub fn conninfo(&self, database: &str, user: &str) -> String {
        if self.others.is_empty() {
            return format!("host={} port=5432 dbname={database} user={user}", self.dir.display());
        }
        let hosts: Vec<String> = self.others.iter().map(|(dir, _)| dir.display().to_string()).collect();
        let ports: Vec<String> = self.others.iter().map(|(_, port)| port.to_string()).collect();
        format!(
            "host={} port={} dbname={database} user={user} connect_timeout=3 target_session_attrs=read-write",
            hosts.join(","),
            ports.join(",")
        )
    }

    pub fn config(&self, database: &str, user: &str) -> Config {
        let mut config = Config::new();
        config.dbname(database).user(user);
        if self.others.is_empty() {
            config.host_path(&self.dir).port(5432);
        } else {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite).connect_timeout(CONNECT_LIMIT);
        }
        for (dir, port) in &self.others {
            config.host_path(dir).port(*port);
        }
        config
    }

    pub fn connect(&self, database: &str, user: &str) -> Result<Client> {
        let connected = self.config(database, user).connect(NoTls);
        connected
            .map_err(|e| Error::from(e).context(&format!("cannot connect to \"{}\" as {user}", self.name)))
    }

    pub fn superuser(&self, database: &str) -> Result<Client> {
        self.connect(database, "postgres")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.others.is_empty() {
            return;
        }
        if std::thread::panicking() {
            eprintln!("--- end of the log of server \"{}\"\n{}", self.name, self.log_tail(6000));
        }
        let stopped = self.stop(Stop::Immediate);
        // The log of a server that would not stop is kept for inspection.
        if stopped.is_ok() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Makes a directory below the run's, and returns its number.
fn new_directory() -> Result<(u32, PathBuf)> {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // Socket paths are limited to 107 bytes, so the server's name is not part of them.
    let dir = env::run_dir()?.join(format!("{}.{number}", std::process::id()));
    fs::create_dir(&dir)?;
    Ok((number, dir))
}

/// Sends a signal to a process that this program started, or to its backend.
pub fn signal(pid: u32, signal: i32) -> Result<()> {
    let pid = libc::pid_t::try_from(pid)?;
    // SAFETY: kill takes two integers and touches no memory of ours.
    if unsafe { libc::kill(pid, signal) } != 0 {
        return Err(format!("cannot signal {pid}: {}", std::io::Error::last_os_error()).into());
    }
    Ok(())
}

/// Returns the processes whose working directory is the data directory, which are the server's own.
pub fn processes_in(data: &Path) -> Result<Vec<u32>> {
    let data = fs::canonicalize(data)?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        if fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == data) {
            found.push(pid);
        }
    }
    Ok(found)
}

fn tail(path: &Path, bytes: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    read().unwrap_or_else(|e| format!("(no log: {e})"))
}
