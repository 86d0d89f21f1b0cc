#!/bin/sh
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Makes a node a directory that speaks TLS alone (sh -s), with the entries of /srv/directory/people.ldif; server.key and
# server.pem are there, too. Run again, it begins again with these entries.
set -eu
export DEBIAN_FRONTEND=noninteractive
if ! command -v slapd > /dev/null; then
  apt-get update -qq
  printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
  chmod 0755 /usr/sbin/policy-rc.d
  apt-get install -qq --no-install-recommends slapd ldap-utils > /dev/null 2>&1
  rm /usr/sbin/policy-rc.d
  systemctl disable --quiet slapd 2> /dev/null
fi
if [ -e /etc/systemd/system/directory.service ]; then systemctl stop directory; fi
cd /srv/directory
rm -rf db
mkdir db
# Of OpenSSH-LPK, which directories have for public keys.
cat > lpk.schema << 'EOF'
attributetype ( 1.3.6.1.4.1.24552.500.1.1.1.13 NAME 'sshPublicKey' EQUALITY octetStringMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )
objectclass ( 1.3.6.1.4.1.24552.500.1.1.2.0 NAME 'ldapPublicKey' SUP top AUXILIARY
  MAY ( sshPublicKey $ uid ) )
EOF
cat > slapd.conf << 'EOF'
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
include /srv/directory/lpk.schema
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCertificateFile /srv/directory/server.pem
TLSCertificateKeyFile /srv/directory/server.key
security ssf=1
sizelimit unlimited
database mdb
maxsize 1073741824
suffix "dc=example,dc=org"
rootdn "cn=admin,dc=example,dc=org"
rootpw directory
directory /srv/directory/db
index objectClass,uid,uidNumber,gidNumber,memberUid,cn eq
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=reader,dc=example,dc=org" read by * none
EOF
cat > /etc/systemd/system/directory.service << 'EOF'
[Unit]
Description=A directory of people, simulated site
[Service]
ExecStart=/usr/sbin/slapd -d 0 -u openldap -g openldap -f /srv/directory/slapd.conf -h ldaps:///
[Install]
WantedBy=multi-user.target
EOF
chown -R openldap:openldap .
setpriv --reuid openldap --regid openldap --clear-groups slapadd -q -f slapd.conf -l people.ldif 2>&1
systemctl daemon-reload
systemctl enable --quiet --now directory
