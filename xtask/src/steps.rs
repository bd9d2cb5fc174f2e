//! Steps that make what checks need: packages, cargo tools, the program under test.

use crate::cx::Cx;
use crate::plan::{Check, Need};
use crate::proc::Cmd;
use crate::where_;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// A test-only cargo tool, its pinned version and its program.
pub struct Tool {
    pub name: &'static str,
    pub version: &'static str,
    /// How much it is optimized: as little as its work bears, because to build the tools takes
    /// longer than to use them.
    opt_level: &'static str,
}

/// Every cargo tool a check may name.
pub const TOOLS: &[Tool] = &[
    Tool { name: "pjdfstest", version: "0.2.2", opt_level: "0" },
    // It makes and compares every byte itself.
    Tool { name: "fsx", version: "0.3.2", opt_level: "1" },
    Tool { name: "cargo-deny", version: "0.20.2", opt_level: "0" },
    // Peers of mcp, for the bench alone.
    Tool { name: "xcp", version: "0.24.9", opt_level: "3" },
    Tool { name: "cpz", version: "3.2.1", opt_level: "3" },
];

/// The program each package is missed by, where it is not one of the package's name. Those that end in
/// `-dev` have none.
const PROGRAMS: &[(&str, &str)] = &[
    ("fuse3", "fusermount3"),
    ("bindfs", "bindfs"),
    ("rsync", "rsync"),
    ("sqlite3", "sqlite3"),
    ("acl", "setfacl"),
    ("attr", "setfattr"),
    ("libcap2-bin", "setcap"),
    ("e2fsprogs", "mkfs.ext4"),
    ("iproute2", "ip"),
    ("git", "git"),
    ("xz-utils", "xz"),
    ("fio", "fio"),
    ("util-linux", "setpriv"),
    ("mount", "losetup"),
    ("openmpi-bin", "mpirun"),
];

pub const PACKAGES: Check = Check {
    name: "packages",
    about: "install the Debian packages that are missing",
    needs: &[],
    limit: 600,
    weight: 1,
    slow: false,
    run: packages,
};

pub const BUILD: Check = Check {
    name: "build",
    about: "build the program under test",
    needs: &[],
    limit: 1500,
    weight: 3,
    slow: false,
    run: build,
};

pub const TOOL_STEPS: &[Check] =
    &[tool_step("install pjdfstest"), tool_step("install fsx"), tool_step("install cargo-deny")];

/// What the name of a step that installs a tool begins with.
const INSTALL: &str = "install ";

const fn tool_step(name: &'static str) -> Check {
    Check {
        name,
        about: "install a cargo tool",
        needs: &[],
        limit: 1200,
        weight: 1,
        slow: false,
        run: tool,
    }
}

/// Whether `package` is missing, judged by its program, or by dpkg where it has none.
pub fn missing(package: &str) -> bool {
    if package.ends_with("-dev") {
        let query = ["-W", "-f", "${db:Status-Status}", package];
        let said = std::process::Command::new("dpkg-query").args(query).output();
        return !said.is_ok_and(|out| out.stdout == b"installed");
    }
    let program = PROGRAMS.iter().find(|(p, _)| *p == package).map_or(package, |(_, prog)| prog);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    !std::env::split_paths(&path).chain(sbin).any(|dir| dir.join(program).exists())
}

/// Whether a tool of the right version is there already.
pub fn tool_ready(name: &str) -> bool {
    let Some(tool) = TOOLS.iter().find(|t| t.name == name) else { return false };
    let program = where_::tools().join("bin").join(name);
    let said = std::process::Command::new(program).arg("--version").output();
    said.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains(tool.version))
}

fn packages(cx: &Cx) -> Result<()> {
    let wanted: Vec<_> = cx.set.wanted.iter().map(String::as_str).filter(|p| missing(p)).collect();
    install_packages(&wanted)
}

/// Has Debian's packages installed.
pub fn install_packages(wanted: &[&str]) -> Result<()> {
    if wanted.is_empty() {
        println!("nothing is missing");
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        bail!("these packages are missing and only root can install them: {wanted:?}");
    }
    let apt = || Cmd::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").limit(500);
    apt().args(["-q", "update"]).ok()?;
    apt()
        .args(["-q", "install", "--yes", "--no-install-recommends"])
        .args(wanted)
        .ok()
        .context("installing packages")?;
    Ok(())
}

fn tool(cx: &Cx) -> Result<()> {
    install_tool(cx, cx.set.name.trim_start_matches(INSTALL))
}

/// Builds a tool of [`TOOLS`] where it is not there.
pub fn install_tool(cx: &Cx, name: &str) -> Result<()> {
    if tool_ready(name) {
        println!("{name} is there");
        return Ok(());
    }
    let tool = TOOLS.iter().find(|t| t.name == name).context("unknown tool")?;
    let jobs = cx.set.jobs.to_string();
    let out = cx
        .cmd("cargo")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", tool.opt_level)
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .args(["install", "--locked", "--jobs", &jobs, "--version", tool.version, tool.name])
        .arg("--root")
        .arg(where_::tools())
        .arg("--target-dir")
        .arg(where_::tools().join(format!("build-{name}")))
        .cwd("/")
        .env_remove("CARGO_TARGET_DIR")
        .limit(1190)
        .ok()?;
    println!("{}", out.tail());
    Ok(())
}

/// The cargo profile of the program under test.
pub fn profile(release: bool) -> &'static str {
    if release { "release" } else { "ci" }
}

/// Programs of the workspace that checks use besides the one under test.
const HELPERS: &[&str] = &["pinstripe-lab", "pinstripe-fuzz", "mcp", "msum", crate::bench::MDS];

/// Copies a program, and the helpers that lie beside it, to where checks run it.
pub fn install(program: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to.parent().unwrap_or(to))?;
    std::fs::copy(program, to).with_context(|| program.display().to_string())?;
    for helper in HELPERS {
        let from = program.with_file_name(helper);
        if from.exists() {
            std::fs::copy(&from, to.with_file_name(helper))?;
        }
    }
    Ok(())
}

fn build(cx: &Cx) -> Result<()> {
    let profile = profile(cx.set.release);
    let cmd = cx.cmd("cargo").args(["build", "--profile", profile]);
    // Together with the tests when they are run: what they need of the dependencies differs a
    // little, and everything below would be built once more.
    let mut cmd = if cx.set.tests {
        // Not this program itself, which goes on running.
        cmd.args(["--workspace", "--exclude", "xtask", "--bins", "--tests"])
    } else {
        cmd.args([
            "-p",
            "pinstripe",
            "-p",
            "pinstripe-lab",
            "-p",
            "pinstripe-fuzz",
            "-p",
            "pinstripe-mtools",
        ])
    };
    if cx.set.release && !cx.set.tests {
        cmd = cmd.args(["-p", crate::bench::MDS]);
    }
    let cmd = cmd.args(["--jobs", &cx.set.jobs.to_string()]).arg("--target-dir");
    let out = cmd.arg(where_::target()).cwd(where_::root()).limit(1490).ok()?;
    println!("{}", out.tail());
    let built = where_::target().join(profile);
    // Other users must reach the program, and a rebuild during the run must not change it.
    install(&built.join("pinstripe"), &cx.set.pinstripe)
}

/// Names of the steps a check waits for.
pub fn steps_of(check: &Check) -> Vec<&'static str> {
    let installs = |tool: &str| TOOL_STEPS.iter().find(|s| s.name.ends_with(tool)).map(|s| s.name);
    let mut steps: Vec<_> = check.needs_tools().filter_map(installs).collect();
    if check.needs_packages().next().is_some() {
        steps.push(PACKAGES.name);
    }
    if check.needs_build() {
        steps.push(BUILD.name);
    }
    steps
}

/// Whether the check may run as this user.
pub fn allowed(check: &Check) -> bool {
    !check.needs.contains(&Need::Root) || rustix::process::geteuid().is_root()
}
