package worker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// certificates has an authority and what it signed, as files.
type certificates struct {
	folder string
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
	pool   *x509.CertPool
}

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	made := &certificates{folder: t.TempDir(), pool: x509.NewCertPool()}
	made.ca, made.key = made.issue(t, "ca", nil)
	made.pool.AddCert(made.ca)
	return made
}

func (c *certificates) path(name string) string { return filepath.Join(c.folder, name) }

// issue writes NAME.pem and NAME.key; one without a parent is an authority.
func (c *certificates) issue(t *testing.T, name string, parent *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: parent == nil, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signer := c.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(c.path(path), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made, key
}

func TestTLSAndClientCertificates(t *testing.T) {
	files := newCertificates(t)
	files.issue(t, "server", files.ca)
	files.issue(t, "client", files.ca)
	files.issue(t, "stranger", nil)
	client := func(name string) *tls.Config {
		config := &tls.Config{RootCAs: files.pool}
		if name != "" {
			pair, err := tls.LoadX509KeyPair(files.path(name+".pem"), files.path(name+".key"))
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		return config
	}
	for _, mutual := range []bool{false, true} {
		options := Options{
			Listen: []string{"127.0.0.1:0"}, CertFile: files.path("server.pem"), KeyFile: files.path("server.key"),
		}
		if mutual {
			options.ClientCAFile = files.path("ca.pem")
		}
		server := newProbe()
		addresses, err := server.Start(options)
		if err != nil {
			t.Fatal(err)
		}
		for name, welcome := range map[string]bool{"": !mutual, "client": true, "stranger": !mutual} {
			worker := pb.NewPolicyWorkerClient(dial(t, addresses[0], credentials.NewTLS(client(name))))
			if answer, err := review(soon(t), worker, "allow", "{}"); (err == nil && answer.Allowed) != welcome {
				t.Errorf("mutual %v, certificate %q: %v", mutual, name, err)
			}
		}
		plain := pb.NewPolicyWorkerClient(dial(t, addresses[0], plaintext))
		if _, err := review(soon(t), plain, "allow", "{}"); err == nil {
			t.Error("a client without TLS got in")
		}
		if err := server.Stop(soon(t)); err != nil {
			t.Error(err)
		}
	}
}

func TestTLSFilesThatCannotBeUsed(t *testing.T) {
	files := newCertificates(t)
	files.issue(t, "a", files.ca)
	files.issue(t, "b", files.ca)
	junk := files.path("junk")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := files.path("a.pem"), files.path("a.key")
	for want, options := range map[string]Options{
		"go together":                         {CertFile: cert},
		"No such file or directory":           {CertFile: files.path("none"), KeyFile: key},
		"are not a PEM certificate":           {CertFile: junk, KeyFile: key},
		"private key does not match":          {CertFile: cert, KeyFile: files.path("b.key")},
		"holds no PEM certificate":            {CertFile: cert, KeyFile: key, ClientCAFile: junk},
		"a CA for clients needs both":         {ClientCAFile: cert},
		"none: No such file or directory":     {CertFile: cert, KeyFile: key, ClientCAFile: files.path("none")},
		"b.key are not a PEM certificate and": {CertFile: cert, KeyFile: files.path("b.key")},
	} {
		if _, err := tlsConfig(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected %q", err, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]address{
		"127.0.0.1:50051": {host: "127.0.0.1", port: 50051},
		"my-host.x:0":     {host: "my-host.x"},
		"[::1]:80":        {host: "::1", port: 80},
		"unix:/run/a.s":   {path: "/run/a.s"},
		"unix:a.s":        {path: "a.s"},
		"unix:///run/a.s": {path: "/run/a.s"},
	} {
		if got, err := parseAddress(text); err != nil || got != want {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "host", ":80", "host:", "host:65536", "::1:80", "[host]:80", "http://host:80", "unix:", "host:80 ",
		"unix:/" + strings.Repeat("x", maxUnixPathBytes),
	} {
		if got, err := parseAddress(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
	if got := (address{host: "::1", port: 80}).String(); got != "[::1]:80" {
		t.Errorf("got %s", got)
	}
}

func TestUnixSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	first, second := newProbe(), newProbe()
	listen := Options{Listen: []string{"unix:" + path}}
	if _, err := first.Start(listen); err != nil {
		t.Fatal(err)
	}
	if _, err := review(soon(t), pb.NewPolicyWorkerClient(dial(t, "unix:"+path, plaintext)), "allow", "{}"); err != nil {
		t.Error(err)
	}
	if _, err := second.Start(listen); err == nil || err.Error() != "unix:"+path+": Address already in use" {
		t.Error(err)
	}
	if err := first.Stop(soon(t)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Start(listen); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Error(err)
	}
	if _, err := second.Start(Options{Listen: []string{"unix:" + path + "/none/w"}}); err == nil {
		t.Error("there was no such folder")
	}
}

func TestAStoppedWorkerLeavesTheSocketOfItsSuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.sock")
	listen := Options{Listen: []string{"unix:" + path}}
	first, second := newProbe(), newProbe()
	if _, err := first.Start(listen); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Start(listen); err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(soon(t)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	_ = second.Stop(soon(t))
}

func TestAPortThatIsTaken(t *testing.T) {
	first, second := newProbe(), newProbe()
	addresses, err := first.Start(Options{Listen: []string{"127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Stop(soon(t))
	// The other address is given up again.
	path := filepath.Join(t.TempDir(), "w.sock")
	if _, err := second.Start(Options{Listen: []string{"unix:" + path, addresses[0]}}); err == nil ||
		err.Error() != addresses[0]+": Address already in use" {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, err := first.Start(Options{}); err == nil {
		t.Error("it started twice")
	}
}
