//! Building C programs against our headers and running them with this library.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A folder with the library under the name programs look for, and what is built against it.
pub struct Kit {
    folder: tempfile::TempDir,
}

impl Kit {
    pub fn new() -> Kit {
        let folder = tempfile::tempdir().expect("a folder");
        let library = library();
        for name in ["libdat2.so.2", "libdat2.so"] {
            std::os::unix::fs::symlink(&library, folder.path().join(name)).expect("a link");
        }
        Kit { folder }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Builds `tests/c/NAME.c` with all warnings as errors.
    pub fn build(&self, name: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
        let program = self.path().join(name);
        let built = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
            .arg("-I")
            .arg(headers())
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .arg(format!("-L{}", self.path().display()))
            // A program that opens it by name is not linked to it.
            .args(["-Wl,--as-needed", "-ldat2", "-lpthread", "-ldl"])
            .output()
            .expect("a C compiler named cc; install gcc");
        let complaint = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{name}.c\n{complaint}");
        program
    }

    /// A command that finds this library, and this alone.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.path());
        // Settings of the user for other uDAPL programs.
        for variable in ["DAT_OVERRIDE", "DAT_PLUGINS", "DAT_PLUGIN_PATH", "DAT_LOG", "RUST_LOG"] {
            command.env_remove(variable);
        }
        command.env("HOME", self.path()).env_remove("XDG_CONFIG_HOME");
        command
    }

    /// Builds a program and runs it with these arguments; it must exit with 0.
    pub fn pass(&self, name: &str, arguments: &[&str]) {
        let program = self.build(name);
        let (status, output) = finish(self.command(&program).args(arguments));
        assert!(status == Some(0), "{name} {arguments:?} exited with {status:?}:\n{output}");
    }
}

/// Runs a command to its end: its exit status and all it printed. Killed when it takes too long.
pub fn finish(command: &mut Command) -> (Option<i32>, String) {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let readers = [reader(child.stdout.take().expect("piped")), reader(child.stderr.take().expect("piped"))];
    let status = wait(&mut child);
    let output: String = readers.into_iter().map(|reader| reader.join().unwrap_or_default()).collect();
    (status, output)
}

fn reader(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = from.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn wait(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return status.code();
        }
        if start.elapsed() > DEADLINE {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The folder of our headers.
pub fn headers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// Whether a program can be started.
pub fn works(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|ran| ran.status.success())
}

/// What cargo built for these tests.
pub fn library() -> PathBuf {
    let tests = std::env::current_exe().expect("this program");
    let library = tests.parent().expect("a folder").join("libdat2.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}

/// The system's own library; `None`: it is not here, and the test does not run.
pub fn system_library() -> Option<PathBuf> {
    let place = "/usr/lib/x86_64-linux-gnu/libdat2.so.2";
    there(place, "the system's own library (libdapl2)").then(|| place.into())
}

/// Whether something the test needs is installed. If not, the test says that it did not run; where `DAT_REQUIRE_UDAPL`
/// is set it fails.
pub fn there(file: &str, what: &str) -> bool {
    if Path::new(file).exists() {
        return true;
    }
    assert!(std::env::var_os("DAT_REQUIRE_UDAPL").is_none(), "{what}: there is no {file}");
    println!("NOT RUN: for want of {what}");
    false
}
