//! CNI_ARGS: `KEY=value;KEY=value`. The order means nothing (containerd's is random).

use crate::error::CniError;

/// What we take from it. Unknown keys are ignored whether or not IgnoreUnknown is set: every
/// plugin of a chain sees the arguments of all (containernetworking/cni#560).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CniArgs {
    pub(crate) ips: Vec<String>,
    pub(crate) mac: Option<String>,
    pub(crate) pod_namespace: Option<String>,
    pub(crate) pod_name: Option<String>,
    pub(crate) pod_uid: Option<String>,
}

impl CniArgs {
    pub(crate) fn parse(text: &str) -> Result<Self, CniError> {
        let mut args = Self::default();
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                let pair: String = pair.chars().take(64).collect();
                return Err(bad(format!("{pair:?} is not KEY=value")));
            };
            let given = || Some(value.to_owned()).filter(|value| !value.is_empty());
            match key {
                "IP" => {
                    args.ips =
                        value.split(',').filter(|ip| !ip.is_empty()).map(str::to_owned).collect()
                }
                "MAC" => args.mac = given(),
                "K8S_POD_NAMESPACE" => args.pod_namespace = given(),
                "K8S_POD_NAME" => args.pod_name = given(),
                "K8S_POD_UID" => args.pod_uid = given(),
                "IgnoreUnknown" => {
                    let known = ["1", "true", "0", "false"];
                    if !known.contains(&value.to_ascii_lowercase().as_str()) {
                        let value: String = value.chars().take(64).collect();
                        return Err(bad(format!("IgnoreUnknown is {value:?}, not true or false")));
                    }
                }
                _ => {}
            }
        }
        Ok(args)
    }
}

fn bad(problem: String) -> CniError {
    CniError::Variable { name: "CNI_ARGS", problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_names_are_found_in_any_order_among_anything() {
        let args = CniArgs::parse(
            "FOO=a=b;K8S_POD_UID=u;IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;;K8S_POD_NAME=web-0;",
        )
        .unwrap();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            args,
            CniArgs {
                ips: vec![],
                mac: None,
                pod_namespace: text("shop"),
                pod_name: text("web-0"),
                pod_uid: text("u"),
            }
        );
        assert_eq!(CniArgs::parse("K8S_POD_NAME=").unwrap(), CniArgs::default());
    }

    #[test]
    fn what_is_no_pair_or_no_boolean_is_refused() {
        for bad in ["IP", "=;x", "IgnoreUnknown=yes", "a=b;IgnoreUnknown="] {
            let Err(err) = CniArgs::parse(bad) else {
                panic!("{bad} was taken");
            };
            assert_eq!(err.code(), 4);
            assert!(err.to_string().starts_with("CNI_ARGS cannot be used: "), "{err}");
        }
    }
}
