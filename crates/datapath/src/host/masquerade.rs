use std::{
    fmt::Write as _,
    io::{self, Read, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use berth_types::HostPrefix;
use ipnet::IpNet;
use tokio::time::{sleep, timeout};

use super::HostError;

/// Where distributions put it. PATH is not asked: the daemon may run without one.
const NFT: [&str; 4] = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft", "/usr/local/sbin/nft"];

/// nft takes some milliseconds.
const NFT_LIMIT: Duration = Duration::from_secs(10);

/// Makes our table what it should be, or takes it away, in one transaction of the kernel.
pub(super) async fn apply(
    prefix: &HostPrefix,
    pod_cidrs: &[IpNet],
    masquerade: bool,
) -> Result<(), HostError> {
    let program = NFT.iter().map(Path::new).find(|path| path.exists());
    match program {
        Some(program) => run(program, &rules(prefix, pod_cidrs, masquerade)).await,
        None if masquerade => Err(HostError::NoNft),
        // Without nft there never was a table of ours.
        None => Ok(()),
    }
}

/// `add` before `delete` so that deleting never fails, whether the table is there or not.
fn rules(prefix: &HostPrefix, pod_cidrs: &[IpNet], masquerade: bool) -> String {
    let mut text = "add table inet berth\ndelete table inet berth\n".to_owned();
    if !masquerade || pod_cidrs.is_empty() {
        return text;
    }
    text.push_str("table inet berth {\n");
    for family in [V4, V6] {
        let cidrs: Vec<_> =
            pod_cidrs.iter().filter(|c| c.addr().is_ipv4() == family.is_v4).collect();
        if !cidrs.is_empty() {
            let elements: Vec<_> = cidrs.iter().map(ToString::to_string).collect();
            let _ = write!(
                text,
                "\tset {} {{\n\t\ttype {}\n\t\tflags interval\n\t\tauto-merge\n\
                 \t\telements = {{ {} }}\n\t}}\n",
                family.set,
                family.kind,
                elements.join(", ")
            );
        }
    }
    text.push_str(
        "\tchain outside {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n",
    );
    for Family { is_v4, set, protocol, multicast, .. } in [V4, V6] {
        if pod_cidrs.iter().any(|cidr| cidr.addr().is_ipv4() == is_v4) {
            let _ = writeln!(
                text,
                "\t\t{protocol} saddr @{set} {protocol} daddr != @{set} \
                 {protocol} daddr != {multicast} oifname != \"{prefix}*\" masquerade"
            );
        }
    }
    text.push_str("\t}\n}\n");
    text
}

struct Family {
    is_v4: bool,
    set: &'static str,
    kind: &'static str,
    protocol: &'static str,
    multicast: &'static str,
}

const V4: Family = Family {
    is_v4: true,
    set: "pods_v4",
    kind: "ipv4_addr",
    protocol: "ip",
    multicast: "224.0.0.0/4",
};

const V6: Family = Family {
    is_v4: false,
    set: "pods_v6",
    kind: "ipv6_addr",
    protocol: "ip6",
    multicast: "ff00::/8",
};

async fn run(program: &Path, rules: &str) -> Result<(), HostError> {
    let failed = |source: io::Error| HostError::Nft { program: program.to_owned(), source };
    let mut child = Command::new(program)
        .args(["-f", "-"])
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // Less than a pipe holds, so this does not wait; closing it ends the input.
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(rules.as_bytes()));
    let ended = timeout(NFT_LIMIT, async {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    let status = match ended {
        Ok(status) => status.map_err(failed)?,
        Err(_) => {
            // It is ours and still there; without an answer its state does not matter.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(io::ErrorKind::TimedOut.into()));
        }
    };
    if !status.success() {
        let mut said = String::new();
        if let Some(stderr) = child.stderr.take() {
            let _ = stderr.take(4096).read_to_string(&mut said);
        }
        return Err(HostError::Rules(said.trim().replace('\n', "; ")));
    }
    written.transpose().map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_replace_our_table_and_name_no_other() {
        let cidrs = ["10.1.0.0/16", "10.2.0.0/16", "fd00:1::/64"].map(|text| text.parse().unwrap());
        assert_eq!(
            rules(&HostPrefix::default(), &cidrs, true),
            "\
add table inet berth
delete table inet berth
table inet berth {
\tset pods_v4 {
\t\ttype ipv4_addr
\t\tflags interval
\t\tauto-merge
\t\telements = { 10.1.0.0/16, 10.2.0.0/16 }
\t}
\tset pods_v6 {
\t\ttype ipv6_addr
\t\tflags interval
\t\tauto-merge
\t\telements = { fd00:1::/64 }
\t}
\tchain outside {
\t\ttype nat hook postrouting priority srcnat; policy accept;
\t\tip saddr @pods_v4 ip daddr != @pods_v4 ip daddr != 224.0.0.0/4 oifname != \"bth*\" masquerade
\t\tip6 saddr @pods_v6 ip6 daddr != @pods_v6 ip6 daddr != ff00::/8 oifname != \"bth*\" masquerade
\t}
}
"
        );
    }

    #[test]
    fn without_masquerade_the_table_goes() {
        let cidrs = ["10.1.0.0/16".parse().unwrap()];
        assert_eq!(
            rules(&HostPrefix::default(), &cidrs, false),
            "add table inet berth\ndelete table inet berth\n"
        );
    }
}
