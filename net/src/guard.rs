//! Which addresses a URL from the input may reach: public ones, and hosts in `http.private_hosts`.
//!
//! The *resolved* address is checked, inside the client's own resolver, so that DNS rebinding gains nothing. A
//! literal address never passes through the resolver and is checked in the URL, in which the `url` crate has
//! already normalized unusual spellings (`0x7f.1`).
//!
//! A proxy from the environment resolves names itself, where this module cannot check the result. Therefore the
//! name is also resolved here first and refused by the same rule; what the proxy then connects to is the proxy's
//! own policy.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ground::task::failure::{Failure, Retry};
use protocol::code::Code;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// The environment variables that reqwest takes a proxy from.
const PROXY_VARIABLES: [&str; 6] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

#[derive(Debug)]
pub(super) struct AddressGuard {
    allowed: Vec<AllowedHost>,
    /// The hosts of the environment's proxies, which may have any address.
    proxies: HashSet<String>,
}

/// A `host` or `host:port` in `http.private_hosts`.
#[derive(Debug)]
struct AllowedHost {
    host: Host,
    port: Option<u16>,
}

/// Why a connection was refused before it was made.
#[derive(Debug)]
pub(super) struct ForbiddenAddress {
    pub(super) host: String,
    address: IpAddr,
}

impl fmt::Display for ForbiddenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = kind(self.address);
        if self.host.trim_matches(['[', ']']).parse() == Ok(self.address) {
            write!(f, "`{}` is a {kind} address, and a URL from the input may only reach public ones", self.host)
        } else {
            let (host, address) = (&self.host, self.address);
            write!(f, "`{host}` is at {address}, a {kind} address, and a URL from the input may only reach public ones")
        }
    }
}

/// What a human calls such an address. An IPv4 address that is written as IPv6 keeps its kind.
fn kind(address: IpAddr) -> &'static str {
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    match address {
        _ if address.is_loopback() => "loopback",
        _ if is_link_local => "link-local",
        _ => "private",
    }
}

impl std::error::Error for ForbiddenAddress {}

impl From<&ForbiddenAddress> for Failure {
    fn from(forbidden: &ForbiddenAddress) -> Self {
        Self::new(Code::ForbiddenAddress, forbidden.to_string()).hint(format!(
            "to allow it, a human adds \"{}\" to `private_hosts` under [http] in config.toml",
            forbidden.host.trim_matches(['[', ']'])
        ))
    }
}

impl AddressGuard {
    /// Fails with the first invalid entry of `private_hosts`.
    pub(super) fn new(private_hosts: &[String]) -> Result<Self, String> {
        let allowed = private_hosts.iter().map(|entry| parse_allowed_host(entry).ok_or_else(|| entry.clone()));
        let proxies = PROXY_VARIABLES.iter().filter_map(|variable| proxy_host(&std::env::var(variable).ok()?));
        Ok(Self { allowed: allowed.collect::<Result<_, _>>()?, proxies: proxies.collect() })
    }

    /// Whether the host of `url` is in `http.private_hosts`.
    pub(super) fn is_allowed(&self, url: &Url) -> bool {
        let host = url.host().map(|host| host.to_owned());
        self.allowed.iter().any(|allowed| {
            Some(&allowed.host) == host.as_ref()
                && allowed.port.is_none_or(|port| url.port_or_known_default() == Some(port))
        })
    }

    /// Checks the address that `url` itself contains, if it contains one.
    pub(super) fn check_literal(&self, url: &Url) -> Result<(), Failure> {
        match literal(url) {
            Some(address) if !is_public(address) && !self.is_allowed(url) => {
                let host = url.host_str().unwrap_or_default().to_owned();
                Err((&ForbiddenAddress { host, address }).into())
            }
            _ => Ok(()),
        }
    }

    /// Checks `url` as far as possible before a connection; see the module documentation.
    pub(super) async fn check(&self, url: &Url) -> Result<(), Failure> {
        if self.is_allowed(url) {
            return Ok(());
        }
        self.check_literal(url)?;
        let host = url.host_str().unwrap_or_default();
        match literal(url) {
            Some(_) => Ok(()),
            None if self.proxies.is_empty() => Ok(()),
            None => match tokio::net::lookup_host((host, 0)).await {
                Ok(addresses) => {
                    let forbidden = addresses.map(|address| address.ip()).find(|address| !is_public(*address));
                    forbidden
                        .map_or(Ok(()), |address| Err((&ForbiddenAddress { host: host.to_owned(), address }).into()))
                }
                Err(error) => {
                    let failure = Failure::new(Code::Unreachable, format!("failed to resolve `{host}`: {error}"));
                    Err(failure.retry(Retry::Later))
                }
            },
        }
    }
}

fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(IpAddr::V4(address)),
        Host::Ipv6(address) => Some(IpAddr::V6(address)),
        Host::Domain(_) => None,
    }
}

/// A resolver that refuses names with a non-public address.
#[derive(Debug, Clone)]
pub(super) struct GuardedResolver(pub(super) Arc<AddressGuard>);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Arc::clone(&self.0);
        Box::pin(async move {
            let host = name.as_str();
            let addresses: Vec<_> = tokio::net::lookup_host((host, 0)).await?.collect();
            let forbidden = addresses.iter().map(std::net::SocketAddr::ip).find(|address| !is_public(*address));
            match forbidden {
                Some(address) if !guard.proxies.contains(host) => {
                    Err(ForbiddenAddress { host: host.to_owned(), address }.into())
                }
                _ => Ok(Box::new(addresses.into_iter()) as Addrs),
            }
        })
    }
}

/// Whether `url` refers to this machine: such a request never goes through a proxy.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name.trim_end_matches('.') == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

fn parse_allowed_host(entry: &str) -> Option<AllowedHost> {
    let (host, port) = match entry.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port.parse().ok()?)),
        _ => (entry, None),
    };
    let bracketed = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    Some(AllowedHost { host: Host::parse(&bracketed).ok()?, port })
}

fn proxy_host(proxy: &str) -> Option<String> {
    let with_scheme = if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
    Url::parse(&with_scheme).ok()?.host_str().map(str::to_owned)
}

/// Whether `address` is globally reachable, by IANA's special-purpose address registries (RFC 6890).
///
/// An IPv6 address with an embedded IPv4 address (mapped, compatible, NAT64, 6to4) is judged by the IPv4 address.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let octets = address.octets();
    let special = address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || matches!(
            octets,
            [0 | 240.., ..] | [100, 64..128, ..] | [192, 0, 0, _] | [192, 88, 99, _] | [198, 18 | 19, ..]
        );
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| is_public_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => embedded(high, low),
        [0x0064, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo, benchmarking, ORCHID and documentation addresses are not global unicast.
        [0x2001, second, ..] => second >= 0x0200 && second != 0x0db8,
        // Global unicast; everything else is loopback, local, multicast or unassigned.
        [first, ..] => (0x2000..0x4000).contains(&first) && first != 0x3fff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_purpose_addresses_are_not_public() {
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
        ] {
            assert!(!is_public(text.parse().expect("an address")), "{text}");
        }
        for text in [
            "8.8.8.8",
            "100.128.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2001:4860:4860::8888",
        ] {
            assert!(is_public(text.parse().expect("an address")), "{text}");
        }
    }

    #[tokio::test]
    async fn every_spelling_of_a_private_address_is_refused_unless_it_is_allowed() {
        let guard = AddressGuard { allowed: Vec::new(), proxies: HashSet::new() };
        for url in [
            "http://0x7f.1/",
            "http://2130706433/",
            "http://127.1/",
            "http://[::ffff:7f00:1]/",
            "http://017700000001/",
            "http://①②⑦.0.0.1/",
        ] {
            let refused = guard.check(&Url::parse(url).expect("a URL")).await.expect_err("refused");
            assert_eq!(refused.error.code, Code::ForbiddenAddress, "{url}");
        }
        let guard = AddressGuard::new(&["127.0.0.1:8080".to_owned(), "::1".to_owned(), "Intranet.example".to_owned()])
            .expect("hosts");
        let allows = |url: &str| guard.is_allowed(&Url::parse(url).expect("a URL"));
        assert!(allows("http://0x7f.1:8080/") && allows("http://[::1]:99/") && allows("https://intranet.EXAMPLE/"));
        assert!(!allows("http://127.0.0.1/") && !allows("http://127.0.0.1:8081/"));
        assert!(AddressGuard::new(&["a b".to_owned()]).is_err());
    }

    #[test]
    fn a_refusal_says_why_and_what_to_change() {
        let refused = |host: &str, address: &str| {
            let address = address.parse().expect("an address");
            let error = Failure::from(&ForbiddenAddress { host: host.to_owned(), address }).error;
            format!("{}; {}", error.message, error.hint.expect("a hint"))
        };
        assert_eq!(
            refused("127.0.0.1", "127.0.0.1"),
            "`127.0.0.1` is a loopback address, and a URL from the input may only reach public ones; to allow it, a \
             human adds \"127.0.0.1\" to `private_hosts` under [http] in config.toml"
        );
        assert!(
            refused("[fd12::1]", "fd12::1").contains("a private address")
                && refused("[fd12::1]", "fd12::1").contains("\"fd12::1\"")
        );
        assert!(refused("wiki", "10.0.0.7").starts_with("`wiki` is at 10.0.0.7, a private address"));
    }

    #[tokio::test]
    async fn with_a_proxy_a_private_name_is_refused_before_the_proxy_sees_it() {
        let guard = AddressGuard { allowed: Vec::new(), proxies: HashSet::from(["proxy.example".to_owned()]) };
        let refused = guard.check(&Url::parse("http://localhost:9/").expect("a URL")).await.expect_err("refused");
        assert_eq!(refused.error.code, Code::ForbiddenAddress);
    }

    #[tokio::test]
    async fn the_resolver_refuses_a_name_with_a_private_address() {
        let resolver = GuardedResolver(Arc::new(AddressGuard { allowed: Vec::new(), proxies: HashSet::new() }));
        let refused = resolver.resolve("localhost".parse().expect("a name")).await.err().expect("refused");
        assert!(refused.downcast_ref::<ForbiddenAddress>().is_some());
    }
}
