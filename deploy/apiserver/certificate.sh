#!/bin/sh
# Makes the API server's client certificate for the gateway, and the CA that signs it, in a folder:
#
#     sh deploy/apiserver/certificate.sh client-certs
#
# client.crt and client.key go to the API servers, ca.crt to the gateway (tls.clientCAFile); keep ca.key to yourself.
# If the folder has a CA already, it is used. Needs OpenSSL 1.1.1 or newer.
set -eu
umask 077
folder=${1:?"usage: certificate.sh FOLDER [DAYS]"}
days=${2:-365}
mkdir -p "$folder"
cd "$folder"

if [ ! -e ca.key ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -sha256 \
        -subj "/CN=admission-gateway client CA" -addext "keyUsage=critical,keyCertSign,cRLSign" \
        -keyout ca.key -out ca.crt
fi

# Into new files, so that a failure leaves the old certificate and key unchanged.
trap 'rm -f new.*' EXIT
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=kube-apiserver" \
    -keyout new.key -out new.csr
cat > new.ext <<END
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=clientAuth
END
openssl x509 -req -in new.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days "$days" -sha256 \
    -extfile new.ext -out new.crt
openssl verify -CAfile ca.crt -purpose sslclient new.crt
mv new.key client.key
mv new.crt client.crt
