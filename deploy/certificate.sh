#!/bin/sh
# Makes the gateway's serving certificate, and the CA that signs it, in a folder:
#
#     sh deploy/certificate.sh certs
#
# ca.crt goes into the registration, tls.crt and tls.key into the Secret; keep ca.key to yourself. If the folder has a
# CA already, it is used: run the script again to renew the serving certificate. Needs OpenSSL 1.1.1 or newer.
set -eu
umask 077
folder=${1:?"usage: certificate.sh FOLDER [DAYS]"}
days=${2:-365}
service=admission-gateway.admission-gateway.svc
mkdir -p "$folder"
cd "$folder"

if [ ! -e ca.key ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -sha256 \
        -subj "/CN=admission-gateway CA" -addext "keyUsage=critical,keyCertSign,cRLSign" \
        -keyout ca.key -out ca.crt
fi

# Into new files, so that a failure leaves the old certificate and key unchanged.
trap 'rm -f new.*' EXIT
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$service" \
    -keyout new.key -out new.csr
cat > new.ext <<END
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectAltName=DNS:$service,DNS:$service.cluster.local
END
openssl x509 -req -in new.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days "$days" -sha256 \
    -extfile new.ext -out new.crt
openssl verify -CAfile ca.crt -verify_hostname "$service" new.crt
mv new.key tls.key
mv new.crt tls.crt
