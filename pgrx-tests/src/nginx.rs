//! A real nginx with its Lua module, and requests to it.

use crate::process::{Directory, Process};
use crate::{Result, wait};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
const PROGRAM: &str = "/usr/sbin/nginx";
const MODULES: &str = "/usr/lib/nginx/modules";

/// One nginx with the gateway and a service for each shard, which answers with the shard's name. Each has a
/// socket of its own in the directory.
pub struct Nginx {
    // It is stopped before its directory is removed.
    process: Option<Process>,
    directory: Directory,
}

impl Nginx {
    pub fn new(shards: &[&str]) -> Result<Nginx> {
        let nginx = Nginx { directory: Directory::new("nginx")?, process: None };
        fs::create_dir(nginx.directory.join("gateway"))?;
        fs::write(nginx.configuration(), nginx.main_file(shards))?;
        Ok(nginx)
    }

    fn main_file(&self, shards: &[&str]) -> String {
        let dir = self.directory.display();
        let temporary = |name: &str| format!("    {name}_temp_path {dir}/{name};\n");
        let temporary: String =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].into_iter().map(temporary).collect();
        let service = |shard: &&str| {
            format!("    server {{ listen unix:{dir}/{shard}.sock; return 200 \"{shard}\"; }}\n")
        };
        let services: String = shards.iter().map(service).collect();
        format!(
            "daemon off;\nworker_processes 2;\npid {dir}/pid;\nerror_log stderr notice;\n\
             load_module {MODULES}/ndk_http_module.so;\nload_module {MODULES}/ngx_http_lua_module.so;\n\
             events {{ worker_connections 256; }}\n\
             http {{\n    access_log off;\n    keepalive_requests 1000000;\n{temporary}{services}    include {dir}/gateway/*.conf;\n}}\n"
        )
    }

    pub fn configuration(&self) -> PathBuf {
        self.directory.join("nginx.conf")
    }

    /// Returns the path of a file of the gateway.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join("gateway").join(format!("{name}.conf"))
    }

    /// Returns a socket address in the format of `shard_set_service` and `listen`.
    pub fn socket(&self, name: &str) -> String {
        format!("unix:{}/{name}.sock", self.directory.display())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["-e", "stderr", "-p"]).arg(&*self.directory).arg("-c").arg(self.configuration());
        command
    }

    /// Returns the command with these arguments, for a shell.
    pub fn shell(&self, arguments: &str) -> String {
        let (dir, file) = (self.directory.display(), self.configuration());
        format!("{PROGRAM} -e stderr -p {dir} -c {} {arguments}", file.display())
    }

    /// Starts nginx and waits for its services.
    pub fn start(&mut self, name: &str) -> Result<()> {
        self.process = Some(Process::start(&mut self.command(), self.directory.join("log"))?);
        wait::until("nginx to listen", LIMIT, || Ok(Requests::open(self, name).ok().map(drop)))
    }

    /// Returns nginx's worker processes.
    pub fn workers(&self) -> Result<Vec<u32>> {
        match &self.process {
            Some(process) => process.children(),
            None => Err("nginx is not running".into()),
        }
    }

    /// Waits until none of these workers is left, so that nobody uses the old configuration any more.
    pub fn wait_replaced(&self, old: &[u32]) -> Result<()> {
        wait::until("nginx to be reloaded", LIMIT, || {
            let workers = self.workers()?;
            Ok((!workers.is_empty() && !workers.iter().any(|pid| old.contains(pid))).then_some(()))
        })
    }
}

/// Requests over one connection.
pub struct Requests(BufReader<UnixStream>);

impl Requests {
    pub fn open(nginx: &Nginx, name: &str) -> Result<Requests> {
        let stream = UnixStream::connect(nginx.directory.join(format!("{name}.sock")))?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Requests(BufReader::new(stream)))
    }

    /// Sends GET, and returns the status and the body.
    pub fn get(&mut self, target: &[u8], headers: &[(&str, &[u8])]) -> Result<(u16, String)> {
        let mut request = [b"GET ", target, b" HTTP/1.1\r\nHost: gateway\r\n"].concat();
        for (name, value) in headers {
            request.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        request.extend(b"\r\n");
        self.0.get_mut().write_all(&request)?;
        self.answer()
    }

    fn answer(&mut self) -> Result<(u16, String)> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| format!("no answer of HTTP: {line:?}"))?;
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line)?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().map_err(|e| format!("{line:?}: {e}"))?
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

/// Encodes every byte that is not plain as %XX.
pub fn percent_encoded(key: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => encoded.push(byte),
            _ => encoded.extend(format!("%{byte:02x}").bytes()),
        }
    }
    encoded
}
